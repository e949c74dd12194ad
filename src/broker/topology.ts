import type { Channel } from 'amqplib';

/** Where the relay publishes. It has no alternate exchange: one would hide what nobody is bound for. */
export const EVENTS_EXCHANGE = 'twinbox.events';
/** Where everybody else publishes. What nobody is bound for is kept, in a queue of the name below. */
export const IN_EXCHANGE = 'twinbox.in';
/** An exchange and its only queue. */
export const UNROUTED = 'twinbox.in.unrouted';
export const DEAD_LETTER_EXCHANGE = 'twinbox.dlx';
/** Who replayed or purged which dead letters. */
export const LETTER_AUDIT = 'twinbox.letters.audit';

/**
 * Redeliveries before the broker gives a message up. Well above any number of restarts in a row; a broker's
 * own default of 20 throws away whatever stood in the window of a consumer that crashed 20 times.
 */
const DELIVERY_LIMIT = 50;
/** Looking into a queue that nobody consumes counts as a delivery; no number of looks may empty it. */
const KEPT_DELIVERY_LIMIT = 1_000_000;
/** Entries of the audit; the oldest go first. */
const MOST_AUDITED = 20_000;

export type Arguments = Readonly<Record<string, string | number>>;

/** Durable, like everything here. */
export interface ExchangeSpec {
  readonly name: string;
  readonly type: 'topic' | 'direct' | 'fanout';
  readonly arguments: Arguments;
}

export interface QueueSpec {
  readonly name: string;
  readonly arguments: Arguments;
}

export interface BindingSpec {
  readonly exchange: string;
  readonly queue: string;
  readonly pattern: string;
}

/** Everything that has to be there, in the order in which it can be declared. */
export interface Topology {
  readonly exchanges: readonly ExchangeSpec[];
  readonly queues: readonly QueueSpec[];
  readonly bindings: readonly BindingSpec[];
  /** Mailboxes of actors whose file cannot be loaded: what is bound there stays, for nobody knows better. */
  readonly unjudged: readonly string[];
}

/** What the broker has to know of an actor. */
export interface ActorDeclaration {
  readonly name: string;
  /** Routing-key patterns; undefined when the actor's file cannot be loaded. */
  readonly subscribes?: readonly string[] | undefined;
}

/** The mailbox queue of an actor. */
export const mailboxQueue = (actor: string): string => `twinbox.${actor}`;
/** Where its dead letters end. */
export const deadLetterQueue = (actor: string): string => `twinbox.${actor}.dlq`;

const EVENTS: ExchangeSpec = { name: EVENTS_EXCHANGE, type: 'topic', arguments: {} };

const EXCHANGES: readonly ExchangeSpec[] = [
  { name: UNROUTED, type: 'fanout', arguments: {} },
  { name: DEAD_LETTER_EXCHANGE, type: 'direct', arguments: {} },
  EVENTS,
  { name: IN_EXCHANGE, type: 'topic', arguments: { 'alternate-exchange': UNROUTED } },
];

/** A queue that is read by people: it has no dead-letter target of its own. */
const keptQueue = (name: string): QueueSpec => ({
  name,
  arguments: { 'x-queue-type': 'quorum', 'x-delivery-limit': KEPT_DELIVERY_LIMIT },
});

/** What is done to letters is written down where the letters are: no other store has to be up for it. */
export const LETTER_AUDIT_QUEUE: QueueSpec = {
  name: LETTER_AUDIT,
  arguments: {
    ...keptQueue(LETTER_AUDIT).arguments,
    'x-max-length': MOST_AUDITED,
    'x-overflow': 'drop-head',
  },
};

/** Dead letters travel at least once, which needs reject-publish. */
const mailbox = (actor: string): QueueSpec => ({
  name: mailboxQueue(actor),
  arguments: {
    'x-queue-type': 'quorum',
    'x-delivery-limit': DELIVERY_LIMIT,
    'x-dead-letter-exchange': DEAD_LETTER_EXCHANGE,
    'x-dead-letter-routing-key': mailboxQueue(actor),
    'x-dead-letter-strategy': 'at-least-once',
    'x-overflow': 'reject-publish',
  },
});

/** The one description of what stands on the broker; whoever declares, plans or checks takes it from here. */
export function topologyOf(actors: readonly ActorDeclaration[]): Topology {
  return {
    exchanges: EXCHANGES,
    queues: [
      keptQueue(UNROUTED),
      LETTER_AUDIT_QUEUE,
      ...actors.flatMap(({ name }) => [keptQueue(deadLetterQueue(name)), mailbox(name)]),
    ],
    bindings: [
      { exchange: UNROUTED, queue: UNROUTED, pattern: '' },
      ...actors.flatMap(({ name, subscribes = [] }) => [
        { exchange: DEAD_LETTER_EXCHANGE, queue: deadLetterQueue(name), pattern: mailboxQueue(name) },
        ...[...new Set(subscribes)].flatMap((pattern) =>
          [EVENTS_EXCHANGE, IN_EXCHANGE].map((exchange) => ({
            exchange,
            queue: mailboxQueue(name),
            pattern,
          })),
        ),
      ]),
    ],
    unjudged: actors
      .filter(({ subscribes }) => subscribes === undefined)
      .map(({ name }) => mailboxQueue(name)),
  };
}

/** The exchange alone: what a relay needs before the first actor is deployed. */
export async function declareExchange(channel: Channel): Promise<void> {
  await assertExchange(channel, EVENTS);
}

/**
 * The mailbox of one actor, its dead-letter queue, and what both need.
 * @param subscribes routing-key patterns; undefined when the actor's file cannot be loaded: what is bound stays
 */
export async function declareMailbox(
  channel: Channel,
  actor: string,
  subscribes: readonly string[] | undefined,
): Promise<void> {
  await declareTopology(channel, topologyOf([{ name: actor, subscribes }]));
}

/**
 * Declares all of it; harmless when it is there already.
 * @throws what the broker says (406, 403) at the first thing that it refuses; the channel is closed then
 */
export async function declareTopology(
  channel: Channel,
  { exchanges, queues, bindings }: Pick<Topology, 'exchanges' | 'queues' | 'bindings'>,
): Promise<void> {
  for (const exchange of exchanges) await assertExchange(channel, exchange);
  for (const queue of queues) await assertQueue(channel, queue);
  for (const { queue, exchange, pattern } of bindings) await channel.bindQueue(queue, exchange, pattern);
}

export async function assertExchange(channel: Channel, spec: ExchangeSpec): Promise<void> {
  await channel.assertExchange(spec.name, spec.type, { durable: true, arguments: { ...spec.arguments } });
}

export async function assertQueue(channel: Channel, spec: QueueSpec): Promise<void> {
  await channel.assertQueue(spec.name, { durable: true, arguments: { ...spec.arguments } });
}
