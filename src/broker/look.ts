import type { Channel, ChannelModel, ConsumeMessage } from 'amqplib';
import { holding, quietChannel, turnAt, type Holding } from './hold.js';

export interface Look<T> {
  readonly queue: string;
  /** Look at no more than this many; undefined: at all that are there at the beginning. */
  readonly most?: number | undefined;
  /**
   * What is kept of a message; undefined: nothing. A body that is not kept is let go at once. `remove` takes the message out
   * of the queue for good, and may be called by `handle` alone.
   */
  readonly pick: (message: ConsumeMessage, remove: () => void) => T | undefined;
  /** Told after each stretch of the queue. */
  readonly handle: (picked: readonly T[]) => Promise<'more' | 'enough'>;
}

export interface Looked {
  readonly messages: number;
  /** Ready at the beginning. */
  readonly ready: number;
  /** There were more, and they were not looked at. */
  readonly partly: boolean;
}

/**
 * Looks at the messages of a queue that people read, oldest first, and takes none away: each is held unacked until the
 * end, and goes back to its place when the channel is closed, or when this process dies. One command at a time: what two
 * hold goes back in the order in which they end, so the second waits for its turn.
 *
 * What goes back stands before all that was never looked at, but behind all else that was. So a look holds everything
 * that was looked at before, and gives back all of it; one that is killed on the way leaves these turned round, and the
 * next look turns them back first.
 * @throws {QueueHeld} when its turn does not come within a minute; what the broker says otherwise
 */
export async function lookInto<T>(model: ChannelModel, look: Look<T>): Promise<Looked> {
  const { queue } = look;
  const asking = await quietChannel(model);
  await asking.checkQueue(queue); // where it is missing, that is told, and not who else wants it
  const giveUpTurn = await turnAt(model, queue);
  try {
    const counted = countsDeliveries(model);
    if (counted) await turnBack(model, asking, queue);
    return await holding(model, asking, queue, (walk) => lookOn(walk, look, counted));
  } finally {
    await giveUpTurn();
    await asking.close().catch(() => undefined);
  }
}

/** Others count otherwise, or give back otherwise: there, nothing is turned. */
function countsDeliveries(model: ChannelModel): boolean {
  const { version } = (model as unknown as { connection: { serverProperties: { version?: unknown } } })
    .connection.serverProperties;
  return typeof version === 'string' && version.startsWith('3.');
}

/** How often a message was given back to this queue. */
const returnsOf = ({ properties }: ConsumeMessage): number => {
  const count: unknown = properties.headers?.['x-delivery-count'];
  return typeof count === 'number' ? count : 0;
};

async function turnBack(model: ChannelModel, asking: Channel, queue: string): Promise<void> {
  const returns: number[] = [];
  await holding(model, asking, queue, ({ ready, walk }) =>
    walk(
      ready,
      (message) => returns.push(returnsOf(message)),
      async () => returns.at(-1) !== 0,
    ),
  );
  const start = startOf(returns);
  if (start > 0)
    await holding(model, asking, queue, ({ walk }) =>
      walk(
        start,
        () => undefined,
        async () => true,
      ),
    );
}

/**
 * Where a queue that may be turned round begins, by how often each of its messages was given back. In order that never
 * grows from one to the next; turned round it grows once, where the end meets the beginning.
 * @returns 0 also where others gave messages back, so that nobody can tell
 */
export function startOf(returns: readonly number[]): number {
  const grows = returns.flatMap((count, at) => (at > 0 && count > (returns[at - 1] as number) ? [at] : []));
  return grows.length === 1 ? (grows[0] as number) : 0;
}

async function lookOn<T>(
  { ready, walk }: Holding,
  { most = ready, pick, handle }: Look<T>,
  counted: boolean,
): Promise<Looked> {
  let picked: T[] = [];
  let messages = 0;
  const seen = { enough: false, covered: !counted };
  const held = await walk(
    ready,
    (message, remove) => {
      if (returnsOf(message) === 0) seen.covered = true;
      if (seen.enough || messages >= most) return;
      messages += 1;
      const one = pick(message, remove);
      if (one !== undefined) picked.push(one);
    },
    async () => {
      const handed = picked;
      picked = [];
      if (!seen.enough) seen.enough = (await handle(handed)) === 'enough';
      return !((seen.enough || messages >= most) && seen.covered);
    },
  );
  return { messages, ready, partly: messages < Math.min(most, ready) && (seen.enough || held.cut) };
}
