import type { Channel, ConsumeMessage } from 'amqplib';
import type { RawDelivery } from '../message/index.js';
import { bounded } from '../runtime/loop.js';
import type { Role } from './connection.js';
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
  /** Deliveries held unacked by this consumer. */
  readonly prefetch: number;
  /** Must not throw. */
  readonly onDelivery: (delivery: Delivery) => void;
}

/** A cancel without an answer: the channel is as good as gone, and its deliveries come again. */
const CANCEL_MS = 2_000;

/** Consumes the mailbox of one actor; declares it first, so that a deleted queue comes back. */
export function createConsumer({ actor, subscribes, prefetch, onDelivery }: ConsumerOptions): Consumer {
  let channel: Channel | undefined;
  let tag: string | undefined;
  let answeredTag: string | undefined;
  let paused = false;
  let consumes = 0;

  /** The tag is ours and known before the answer: a pause or resume in between must find this consumer. */
  const consume = async (open: Channel): Promise<void> => {
    consumes += 1;
    const consumerTag = `twinbox-${consumes}`;
    tag = consumerTag;
    const take = (message: ConsumeMessage | null): void => {
      // null: the broker cancelled the consumer; the connection sees the same as an event and sets up anew.
      if (message !== null) onDelivery(bind(open, message, () => channel === open));
    };
    await open.consume(mailboxQueue(actor), take, { consumerTag });
    answeredTag = consumerTag;
  };

  const stopTaking = async (): Promise<void> => {
    const [open, consumerTag] = [channel, tag];
    tag = undefined;
    if (open !== undefined && consumerTag !== undefined)
      await quietly(() => bounded('cancel', CANCEL_MS, open.cancel(consumerTag)));
  };

  return {
    role: {
      name: mailboxQueue(actor),
      confirm: false,
      setup: async (fresh) => {
        await declareMailbox(fresh, actor, subscribes);
        await fresh.prefetch(prefetch);
        channel = fresh;
        if (!paused) await consume(fresh);
      },
      down: () => {
        channel = undefined;
        tag = undefined;
        answeredTag = undefined;
      },
    },
    pause: async () => {
      paused = true;
      await stopTaking();
    },
    resume: async () => {
      paused = false;
      const open = channel;
      if (open !== undefined && tag === undefined) await quietly(() => consume(open));
    },
    attached: () => tag !== undefined && tag === answeredTag,
  };
}

function bind(channel: Channel, message: ConsumeMessage, isOpen: () => boolean): Delivery {
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
    ack: () => once(() => channel.ack(message)),
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
