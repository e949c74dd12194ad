import type { ArgumentDifference } from './explain.js';
import {
  DEAD_LETTER_EXCHANGE,
  EVENTS_EXCHANGE,
  IN_EXCHANGE,
  UNROUTED,
  type BindingSpec,
  type ExchangeSpec,
  type QueueSpec,
  type Topology,
} from './topology.js';

/** What stands on the live broker, as far as it can be seen. */
export interface Seen {
  readonly through: 'management' | 'declares';
  /** Those that exist, by name, with what differs from the description (nothing, for those that it does not name). */
  readonly exchanges: ReadonlyMap<string, SeenThing>;
  readonly queues: ReadonlyMap<string, SeenQueue>;
  /** Undefined: bindings cannot be seen, and queues are known only as far as they were asked for by name. */
  readonly bindings: readonly SeenBinding[] | undefined;
}

export interface SeenThing {
  readonly differs: readonly ArgumentDifference[];
}

export interface SeenQueue extends SeenThing {
  /** Undefined: not known now. */
  readonly messages: number | undefined;
  readonly consumers: number | undefined;
  readonly deadLetterExchange?: string;
  /** A policy that applies, and what it sets. */
  readonly policy?: string;
}

export interface SeenBinding extends BindingSpec {
  readonly arguments: Readonly<Record<string, unknown>>;
}

export type Difference =
  | { readonly kind: 'exchange-missing'; readonly exchange: ExchangeSpec }
  | ({ readonly kind: 'exchange-differs'; readonly exchange: string } & ArgumentDifference)
  | { readonly kind: 'queue-missing'; readonly queue: QueueSpec }
  | ({ readonly kind: 'queue-differs'; readonly queue: string } & ArgumentDifference)
  | { readonly kind: 'binding-missing'; readonly binding: BindingSpec }
  /** On a mailbox of an actor, from an exchange of ours, and declared by nobody. */
  | { readonly kind: 'binding-old'; readonly binding: SeenBinding }
  /** The mailbox, or the dead letters, of an actor that there is no more. */
  | { readonly kind: 'queue-old'; readonly queue: string; readonly messages: number | undefined }
  | {
      readonly kind: 'migration-unfinished';
      readonly queue: string;
      readonly temporary: string;
      readonly messages: number | undefined;
    };

export interface Plan {
  readonly differences: readonly Difference[];
  /** What is not a difference but worth knowing. */
  readonly notes: readonly string[];
}

/** Where the content of a queue stands while the queue is made anew. */
export const temporaryQueue = (queue: string): string => `${queue}.migrating`;

const OURS: readonly string[] = [EVENTS_EXCHANGE, IN_EXCHANGE, DEAD_LETTER_EXCHANGE, UNROUTED];
const DEAD_LETTERS = /^twinbox\.[a-z][a-z0-9-]*\.dlq$/;
const MAILBOX = /^twinbox\.[a-z][a-z0-9-]*$/;

/** The difference between what has to be there and what is there, in the order in which it would be made good. */
export function planOf(want: Topology, seen: Seen): Plan {
  const queues = new Set(want.queues.map(({ name }) => name));
  const differences: Difference[] = [
    ...want.exchanges.flatMap((exchange): Difference[] => {
      const found = seen.exchanges.get(exchange.name);
      if (found === undefined) return [{ kind: 'exchange-missing', exchange }];
      return found.differs.map((one) => ({ kind: 'exchange-differs', exchange: exchange.name, ...one }));
    }),
    ...want.queues.flatMap((queue): Difference[] => {
      const found = seen.queues.get(queue.name);
      if (found === undefined) return [{ kind: 'queue-missing', queue }];
      return found.differs.map((one) => ({ kind: 'queue-differs', queue: queue.name, ...one }));
    }),
    ...missingBindings(want, seen),
    ...want.queues.flatMap(({ name }): Difference[] => {
      const temporary = temporaryQueue(name);
      const left = seen.queues.get(temporary);
      return left === undefined
        ? []
        : [{ kind: 'migration-unfinished', queue: name, temporary, messages: left.messages }];
    }),
    ...(seen.bindings ?? []).flatMap((binding): Difference[] => {
      const judged = queues.has(binding.queue) && !want.unjudged.includes(binding.queue);
      const old = judged && OURS.includes(binding.exchange) && !isWanted(want, binding);
      return old ? [{ kind: 'binding-old', binding }] : [];
    }),
    // Mailboxes first: what they still hold may end among their dead letters.
    ...[...seen.queues]
      .filter(([name, queue]) => !queues.has(name) && isOfAnActor(name, queue, queues))
      .sort(([one], [other]) => one.length - other.length || one.localeCompare(other))
      .map(([queue, { messages }]): Difference => ({ kind: 'queue-old', queue, messages })),
  ];
  return { differences, notes: notesOf(want, seen) };
}

/** Exactly that binding, without arguments. */
function isWanted({ bindings }: Topology, { exchange, queue, pattern }: SeenBinding): boolean {
  return bindings.some((one) => one.exchange === exchange && one.queue === queue && one.pattern === pattern);
}

function missingBindings(want: Topology, { bindings: found }: Seen): Difference[] {
  if (found === undefined) return [];
  return want.bindings
    .filter(
      ({ exchange, queue, pattern }) =>
        !found.some((one) => one.exchange === exchange && one.queue === queue && one.pattern === pattern),
    )
    .map((binding) => ({ kind: 'binding-missing', binding }));
}

function isOfAnActor(name: string, { deadLetterExchange }: SeenQueue, wanted: ReadonlySet<string>): boolean {
  if (MAILBOX.test(name)) return deadLetterExchange === DEAD_LETTER_EXCHANGE;
  return DEAD_LETTERS.test(name) && !wanted.has(name.slice(0, -'.dlq'.length));
}

function notesOf(want: Topology, seen: Seen): string[] {
  const notes = want.unjudged.map(
    (queue) => `the actor of ${queue} cannot be loaded: what is bound to it is not judged`,
  );
  for (const { name } of want.queues) {
    const policy = seen.queues.get(name)?.policy;
    if (policy !== undefined) notes.push(`a policy applies to ${name}: ${policy}`);
  }
  if (seen.bindings === undefined) {
    notes.push(
      'bindings, and queues of actors that there are no more, cannot be seen without the management API (RABBITMQ_MANAGEMENT_URL); `apply` binds what has to be bound all the same',
    );
    return notes;
  }
  const queues = new Set(want.queues.map(({ name }) => name));
  for (const { exchange, queue, pattern } of seen.bindings)
    if (queues.has(queue) && !OURS.includes(exchange) && !/\.migrat(ing|ed)$/.test(exchange))
      notes.push(
        `${queue} is bound to ${exchange} with '${pattern}' too, which is not of Twinbox's making; it stays`,
      );
  return notes;
}

/** Where two sets of arguments differ, by name. */
export function compareArguments(
  want: Readonly<Record<string, unknown>>,
  have: Readonly<Record<string, unknown>>,
): ArgumentDifference[] {
  const names = [...new Set([...Object.keys(want), ...Object.keys(have)])].sort();
  return names
    .map((argument) => ({ argument, have: printed(have[argument]), want: printed(want[argument]) }))
    .filter((one) => one.have !== one.want);
}

function printed(value: unknown): string | undefined {
  return value === undefined || typeof value === 'string' ? value : JSON.stringify(value);
}
