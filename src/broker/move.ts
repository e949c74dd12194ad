import type { ConfirmChannel, GetMessage, Options } from 'amqplib';
import { HEADER } from '../message/index.js';
import { bounded } from '../runtime/loop.js';

/** What is needed of a message to publish it anew, however it was fetched. */
interface Copied {
  readonly content: Buffer;
  readonly fields: { readonly exchange: string; readonly routingKey: string };
  readonly properties: unknown;
}

/** Unacked at the same time: what is moved twice when the mover is killed. */
const BATCH = 200;
const BATCH_BYTES = 8_000_000;
const CONFIRM_MS = 30_000;

/**
 * Moves messages from a queue to an exchange, oldest first, with their ids, headers and routing keys: each is acked only
 * when the broker has confirmed and routed its copy. A mover that is killed leaves what it held in the queue, and what
 * was confirmed already in both.
 * @param most no more than this many: a queue that is filled meanwhile must not hold it for ever
 * @returns how many; fewer than `most` when the queue was found empty
 * @throws when the broker does not take a copy; everything of that batch is still in the queue then
 */
export async function moveMessages(
  channel: ConfirmChannel,
  queue: string,
  exchange: string,
  most: number,
): Promise<number> {
  let moved = 0;
  while (moved < most) {
    const batch = await fetchBatch(channel, queue, Math.min(BATCH, most - moved));
    const last = batch.at(-1);
    if (last === undefined) break;
    await publishAll(channel, exchange, batch);
    channel.ack(last, true);
    moved += batch.length;
  }
  return moved;
}

async function fetchBatch(channel: ConfirmChannel, queue: string, most: number): Promise<GetMessage[]> {
  const batch: GetMessage[] = [];
  for (let bytes = 0; batch.length < most && bytes < BATCH_BYTES;) {
    const message = await channel.get(queue);
    if (message === false) break;
    batch.push(message);
    bytes += message.content.length;
  }
  return batch;
}

/** @throws unless each of them is confirmed and routed */
async function publishAll(
  channel: ConfirmChannel,
  exchange: string,
  messages: readonly Copied[],
): Promise<void> {
  let returned = 0;
  const count = (): void => {
    returned += 1;
  };
  channel.on('return', count);
  try {
    const confirms = messages.map(
      (message) =>
        new Promise<void>((resolve, reject) => {
          channel.publish(
            exchange,
            message.fields.routingKey,
            message.content,
            { ...sameAgain(message, exchange), mandatory: true, persistent: true },
            (error: Error | null) => {
              if (error === null) resolve();
              else reject(new Error(`the broker did not take a copy (${error.message})`));
            },
          );
        }),
    );
    await bounded('the confirms of the copies', CONFIRM_MS, Promise.all(confirms));
    if (returned > 0) throw new Error(`no queue is bound to ${exchange}: ${returned} copies came back`);
  } finally {
    channel.off('return', count);
  }
}

/** The properties of a message that is published anew, without what would make the broker do more, or refuse it. */
export function sameAgain({ fields, properties }: Omit<Copied, 'content'>, by: string): Options.Publish {
  const { userId, ...rest } = properties as Options.Publish;
  const headers = (rest.headers ?? {}) as Record<string, unknown>;
  const { 'x-delivery-count': _count, 'x-acquired-count': _acquired, CC: cc, ...given } = headers;
  return {
    ...rest,
    headers: {
      ...given,
      // The routing key stays what it was; the exchange cannot.
      ...(fields.exchange === by ? {} : { [HEADER.exchange]: given[HEADER.exchange] ?? fields.exchange }),
      [HEADER.routingKey]: given[HEADER.routingKey] ?? fields.routingKey,
      ...(cc === undefined ? {} : { 'x-original-cc': cc }),
      ...(userId === undefined ? {} : { 'x-original-user-id': userId }),
    },
  };
}
