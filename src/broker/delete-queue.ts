import type { ChannelModel } from 'amqplib';
import { pause } from '../runtime/loop.js';

export interface DeleteOptions {
  readonly model: ChannelModel;
  readonly queue: string;
  /** Moves what still arrived to where it is safe; without it a queue that is not empty is kept. */
  readonly empty?: () => Promise<unknown>;
  /** All messages of the queue, those included that nobody is shown; undefined when nobody can tell. */
  readonly messagesOf?: ((queue: string) => Promise<number | undefined>) | undefined;
}

/** Why a queue is left as it is. */
export class QueueKept extends Error {
  override readonly name = 'QueueKept';
}

const FIGURES_MS = 20_000;
const LOOK_MS = 500;
/** What was routed before the bindings went is in the queue long before. */
const QUIET_MS = 300;
const LOOKS = 20;

/**
 * Deletes a queue that nothing leads to any more, once it was empty for a while and nobody consumes it. A quorum queue
 * takes no delete with if-empty or if-unused (the broker closes the connection over it), so what is sent straight
 * to its name in the very moment of the deletion is lost with it: stop such publishers first.
 * @throws {QueueKept} when it holds messages, or others consume it: it is left as it is
 */
export async function deleteEmptyQueue({ model, queue, empty, messagesOf }: DeleteOptions): Promise<void> {
  if (messagesOf !== undefined) await waitForNone(queue, messagesOf);
  const channel = await model.createChannel();
  channel.on('error', () => undefined); // the call under way rejects with the same
  try {
    for (let looks = 0; ; looks += 1) {
      await pause(QUIET_MS);
      const { messageCount, consumerCount } = await channel.checkQueue(queue);
      if (consumerCount > 0)
        throw new QueueKept(
          `${queue} is consumed by ${consumerCount}: stop ingest first, then run this again`,
        );
      if (messageCount === 0) break;
      if (empty === undefined || looks === LOOKS)
        throw new QueueKept(
          `${queue} is filled again and again (ready: ${messageCount}): stop what publishes straight to it`,
        );
      await empty();
    }
    await channel.deleteQueue(queue);
  } finally {
    await channel.close().catch(() => undefined);
  }
}

/** What others hold unacked, or what is being dead-lettered, is no longer there when the queue is. */
async function waitForNone(
  queue: string,
  messagesOf: (queue: string) => Promise<number | undefined>,
): Promise<void> {
  const until = performance.now() + FIGURES_MS;
  let messages = await messagesOf(queue);
  while (messages !== 0 && performance.now() < until) {
    await pause(LOOK_MS);
    messages = await messagesOf(queue);
  }
  if (messages !== 0 && messages !== undefined)
    throw new QueueKept(
      `${queue} still holds ${messages} messages that are unacked or on their way to the dead letters: end what holds them, or wait three minutes, and run this again`,
    );
}
