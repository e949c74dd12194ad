import type { Channel, ChannelModel, ConsumeMessage } from 'amqplib';
import { bounded, isOver, pause, TimeoutError } from '../runtime/loop.js';

/** Another command looks into the queue. */
export class QueueHeld extends Error {
  override readonly name = 'QueueHeld';
}

/** So few are held and given back in one step of the broker: whatever dies, their order stays. */
const FIRST_STRETCH = 100;
/** A consumer's prefetch is two bytes. */
const LARGEST_STRETCH = 65_535;
/** Of bodies in one stretch, by the average so far: the broker reads them all at once. */
const STRETCH_BYTES = 256_000_000;
/**
 * What a channel's consumers held goes back consumer by consumer, and only up to 32 of them in the order in which they
 * were opened. (Measured on RabbitMQ 3.10.8, closed and killed by -9: one consumer or 32 keep the order of 100,000
 * messages; 33 do not. Nor do 20 messages fetched by basic.get, each of which counts as a consumer, nor a nack of all.)
 */
const MOST_STRETCHES = 32 - 2;
const TURN_MS = 60_000;
const TURN_AGAIN_MS = 100;
const TICK_MS = 200;
/** Nothing ready and nothing coming for so long: others have the rest. */
const QUIET_MS = 1_000;
const SILENT_MS = 15_000;
const BACK_TICK_MS = 25;
const REST_MS = 3_000;

export interface Holding {
  /** Ready at the beginning. */
  readonly ready: number;
  /**
   * Holds message after message, stretch by stretch, until it has `most`.
   * @param goOn asked after each stretch
   */
  walk(
    most: number,
    take: (message: ConsumeMessage, remove: () => void) => void,
    goOn: () => Promise<boolean>,
  ): Promise<{ readonly cut: boolean }>;
}

/** Whatever `work` holds is back in its place when this is over. */
export async function holding<T>(
  model: ChannelModel,
  asking: Channel,
  queue: string,
  work: (holding: Holding) => Promise<T>,
): Promise<T> {
  const channel = await quietChannel(model);
  const state = { held: 0, removed: false };
  const walk: Holding['walk'] = async (most, take, goOn) => {
    let messages = 0;
    let bytes = 0;
    for (let nth = 1; messages < most; nth += 1) {
      if (nth > MOST_STRETCHES) return { cut: true };
      const fitting = Math.floor(STRETCH_BYTES / Math.max(1, bytes / Math.max(1, messages)));
      const grown = Math.min(
        FIRST_STRETCH * 2 ** (nth - 1),
        LARGEST_STRETCH,
        Math.max(fitting, FIRST_STRETCH),
      );
      const wanted = Math.min(grown, most - messages);
      const arrived = await stretch(channel, queue, nth, wanted, (message) => {
        bytes += message.content.length;
        state.held += 1;
        take(message, () => {
          state.held -= 1;
          state.removed = true;
          channel.ack(message);
        });
      });
      messages += arrived;
      if (!(await goOn()) || arrived < wanted) break; // fewer: somebody else took the rest
    }
    return { cut: false };
  };
  try {
    const result = await work({ ready: (await asking.checkQueue(queue)).messageCount, walk });
    if (state.removed) state.held += await settle(channel, queue);
    return result;
  } finally {
    const close = async (): Promise<void> => channel.close(); // of a closed channel it throws
    await bounded('giving the messages back', SILENT_MS, close()).catch(() => undefined);
    await whenBack(asking, queue, state.held);
  }
}

/**
 * Waits until the broker has done the acks. It sends a quorum queue 32 of a channel's at once, and the rest as these are
 * answered; what was not sent when the channel closes is forgotten. To begin and to end a consumer goes the same way and is
 * answered: after the first the rest is sent, after the second it is done.
 * @returns how many messages these consumers were given; they are held like the others
 */
async function settle(channel: Channel, queue: string): Promise<number> {
  let given = 0;
  for (const consumerTag of ['look-98', 'look-99']) {
    await channel.prefetch(1);
    await channel.consume(queue, () => (given += 1), { consumerTag });
    await channel.cancel(consumerTag);
  }
  return given;
}

/** A consumer for the next `wanted` messages. @returns how many came; fewer when the queue has no more */
async function stretch(
  channel: Channel,
  queue: string,
  nth: number,
  wanted: number,
  take: (message: ConsumeMessage) => void,
): Promise<number> {
  // Two digits: the broker sorts them by name.
  const consumerTag = `look-${String(nth).padStart(2, '0')}`;
  let arrived = 0;
  await channel.prefetch(wanted);
  const stopped = new AbortController();
  await new Promise<void>((resolve, reject) => {
    const fail = (error: unknown): void => reject(error instanceof Error ? error : new Error(String(error)));
    channel.once('error', fail);
    channel.once('close', () => fail(new Error(`the channel to ${queue} was closed under the look`)));
    const onMessage = (message: ConsumeMessage | null): void => {
      if (message === null) fail(new Error(`${queue} was deleted under the look`));
      if (message === null || arrived === wanted) return;
      arrived += 1;
      try {
        take(message);
      } catch (error) {
        fail(error); // thrown on, it would close the channel and be lost
      }
      if (arrived === wanted) resolve();
    };
    channel.consume(queue, onMessage, { consumerTag }).catch(fail);
    untilQuiet(channel, queue, () => arrived, stopped.signal).then(resolve, fail);
  }).finally(() => stopped.abort());
  // What the broker gave this consumer comes before the answer, however slow it is; and from then on an ack makes no room
  // for another message.
  await channel.cancel(consumerTag);
  return arrived;
}

/** Ends when nothing comes any more because nothing is ready; others may have taken it. Or when it is told to stop. */
async function untilQuiet(
  channel: Channel,
  queue: string,
  arrived: () => number,
  stop: AbortSignal,
): Promise<void> {
  for (let silentMs = 0; !isOver(stop);) {
    const seen = arrived();
    await pause(TICK_MS, stop);
    if (isOver(stop)) return;
    silentMs = arrived() === seen ? silentMs + TICK_MS : 0;
    if (silentMs < QUIET_MS) continue;
    const { messageCount } = await channel.checkQueue(queue);
    if (messageCount === 0 && arrived() === seen) return;
    if (silentMs > SILENT_MS)
      throw new TimeoutError(`${queue} has messages, and the broker delivers none of them`);
  }
}

/**
 * Waits until no other command looks into the queue, and keeps the others waiting until it is given up.
 * An exclusive queue lives as long as its connection, and no other connection may declare it.
 * @throws {QueueHeld} after a minute
 */
export async function turnAt(model: ChannelModel, queue: string): Promise<() => Promise<void>> {
  const name = `${queue}.turn`;
  const until = performance.now() + TURN_MS;
  for (;;) {
    const channel = await quietChannel(model);
    try {
      await channel.assertQueue(name, { exclusive: true, durable: false });
      return async () => {
        await channel.deleteQueue(name).catch(() => undefined);
        await channel.close().catch(() => undefined);
      };
    } catch (error) {
      if ((error as { code?: unknown }).code !== 405) throw error;
      if (performance.now() > until)
        throw new QueueHeld(
          `another command looks into ${queue} at this moment; let it end, then run this again`,
          { cause: error },
        );
    }
    await pause(TURN_AGAIN_MS);
  }
}

/**
 * The broker answers the close first, and then takes its time: for 100,000 messages up to a second and a half. How many
 * consumers there are tells nothing yet; where others take the messages, the count comes to rest below what was held.
 */
async function whenBack(channel: Channel, queue: string, held: number): Promise<void> {
  let last = -1;
  try {
    for (let restsMs = 0; restsMs < REST_MS; restsMs += BACK_TICK_MS) {
      const { messageCount } = await channel.checkQueue(queue);
      if (messageCount >= held) return;
      if (messageCount !== last) restsMs = 0;
      last = messageCount;
      await pause(BACK_TICK_MS);
    }
  } catch {
    // The connection is gone: so is what it held, back to its place.
  }
}

export async function quietChannel(model: ChannelModel): Promise<Channel> {
  const channel = await model.createChannel();
  channel.on('error', () => undefined); // the call under way rejects with the same
  channel.setMaxListeners(2 * MOST_STRETCHES + 10);
  return channel;
}
