import type { Channel, ConsumeMessage } from 'amqplib';
import type { RawDelivery } from '../message/index.js';
import { bounded } from '../runtime/loop.js';
import type { Role } from './connection.js';
import { corkOf } from './cork.js';
import { acked, delivered, HELD_BYTES, isWorthChanging, NOTHING_SEEN, prefetchFor } from './prefetch.js';
import { declareMailbox, mailboxQueue } from './topology.js';

/** One delivery, bound to the channel that brought it: on another channel its tag means another message. */
export interface Delivery extends RawDelivery {
  /** False when the channel is gone: the broker delivers the message again. */
  ack(): boolean;
  /** Gives it back to the queue. */
  giveBack(): boolean;
  /** Its channel is open: it can still be settled. */
  alive(): boolean;
}

export interface Consumer {
  readonly role: Role;
  /** Stops deliveries; what was delivered stays with its receiver. */
  pause(): Promise<void>;
  /** Takes deliveries again, at once or with the next channel. */
  resume(): Promise<void>;
  /** Attached and taking. */
  attached(): boolean;
}

export interface ConsumerOptions {
  readonly actor: string;
  readonly subscribes: readonly string[] | undefined;
  /** Deliveries held unacked by this consumer, at most. */
  readonly prefetch: number;
  /** Must not throw. */
  readonly onDelivery: (delivery: Delivery) => void;
}

/** A cancel without an answer: the channel is as good as gone, and its deliveries come again. */
const CANCEL_MS = 2_000;
const SURVIVED_MS = 5_000;

/** Consumes the mailbox of one actor; declares it first, so that a deleted queue comes back. */
export function createConsumer({ actor, subscribes, prefetch, onDelivery }: ConsumerOptions): Consumer {
  let channel: Channel | undefined;
  let together: () => void = () => undefined;
  /** The consumer that the broker knows, or is being told of. */
  let current: { readonly tag: string; readonly prefetch: number; answered: boolean } | undefined;
  let paused = false;
  let consumes = 0;
  let seen = NOTHING_SEEN;
  let aligning: Promise<void> | undefined;
  let again = false;
  let surviving: NodeJS.Timeout | undefined;

  const wanted = (): number => prefetchFor(seen, { most: prefetch, bytes: HELD_BYTES });
  const isAligned = (): boolean =>
    paused ? current === undefined : current !== undefined && !isWorthChanging(current.prefetch, wanted());

  const take = (open: Channel, message: ConsumeMessage | null): void => {
    // null: the broker cancelled the consumer; the connection sees the same as an event and sets up anew.
    if (message === null) return;
    if (surviving === undefined) {
      // Held that long, by an inbox that does not take it or does not answer, it is no message that kills its consumer.
      surviving = setTimeout(() => {
        if (channel !== open) return;
        seen = { ...seen, fresh: true };
        void quietly(align);
      }, SURVIVED_MS).unref();
    }
    seen = delivered(seen, message.content.length);
    const onAck = (): void => {
      if (channel !== open) return;
      together();
      seen = acked(seen, message.fields.redelivered);
      if (!isAligned()) void quietly(align);
    };
    onDelivery(bind(open, message, onAck, () => channel === open));
    if (!isAligned()) void quietly(align);
  };

  /** The prefetch counts for each consumer, and for those alone that begin after it: another count, another consumer. */
  const alignOnce = async (open: Channel): Promise<void> => {
    if (current !== undefined) {
      const { tag } = current;
      current = undefined;
      await bounded('cancel', CANCEL_MS, open.cancel(tag));
    }
    if (paused || channel !== open) return;
    consumes += 1;
    const mine = { tag: `twinbox-${consumes}`, prefetch: wanted(), answered: false };
    current = mine;
    await open.prefetch(mine.prefetch);
    await open.consume(mailboxQueue(actor), (message) => take(open, message), { consumerTag: mine.tag });
    mine.answered = true;
  };

  const alignAll = async (): Promise<void> => {
    while (again) {
      again = false;
      const open = channel;
      if (open === undefined || isAligned()) continue;
      try {
        await alignOnce(open);
      } catch (error) {
        if (channel === open) throw error;
        again = true; // that channel is gone; there may be another
      }
    }
  };
  /** Brings the broker's consumer to what is wanted now. One at a time: a pause may come while a consumer begins. */
  const align = (): Promise<void> => {
    again = true;
    aligning ??= alignAll().finally(() => {
      aligning = undefined;
    });
    return aligning;
  };

  return {
    role: {
      name: mailboxQueue(actor),
      confirm: false,
      setup: async (fresh) => {
        await declareMailbox(fresh, actor, subscribes);
        channel = fresh;
        together = corkOf(fresh);
        await align();
      },
      down: () => {
        channel = undefined;
        current = undefined;
        clearTimeout(surviving);
        surviving = undefined;
        seen = { ...NOTHING_SEEN, meanBytes: seen.meanBytes };
      },
    },
    pause: async () => {
      paused = true;
      await quietly(align);
    },
    resume: async () => {
      paused = false;
      await quietly(align);
    },
    attached: () => current?.answered === true,
  };
}

function bind(channel: Channel, message: ConsumeMessage, onAck: () => void, isOpen: () => boolean): Delivery {
  let settled = false;
  const once = (settle: () => void): boolean => {
    if (settled) return false;
    settled = true;
    try {
      settle();
      return true;
    } catch {
      return false; // IllegalOperationError: the channel is closed, the broker has the message back already
    }
  };
  return {
    content: message.content,
    fields: message.fields,
    properties: message.properties as unknown as Record<string, unknown>,
    ack: () =>
      once(() => {
        onAck();
        channel.ack(message);
      }),
    giveBack: () => once(() => channel.nack(message, false, true)),
    alive: () => !settled && isOpen(),
  };
}

/** A channel that closes under a cancel or consume is set up anew by its connection. */
async function quietly(call: () => Promise<unknown>): Promise<void> {
  try {
    await call();
  } catch {
    // see above
  }
}
