import type { ClientSession, Db } from 'mongodb';
import type { z } from 'zod';
import type { BackoffPolicy } from '../runtime/retry.js';

/** What an effect may use of its message and of the run it is in. */
export interface EffectContext<R = undefined> {
  /** The id that travels the whole way; the same in every run of this message. */
  readonly messageId: string;
  readonly type: string;
  readonly key?: string;
  /** Own, bounded, whitelisted headers of the message. */
  readonly headers: Readonly<Record<string, unknown>>;
  /** 1 for the first try; grows with each failure, not with a hand-back or a crash. */
  readonly attempt: number;
  readonly receivedAt: Date;
  /** What the definition's `open` returned. */
  readonly resources: R;
  /** Aborts when the run is over: timed out, lease lost, cancelled, or the process stops. */
  readonly signal: AbortSignal;
  readonly log: EffectLog;
  /**
   * Runs `work` once for this message: a finished step is remembered in the inbox document and not run
   * again. `work` gets a key that is the same in every run, for systems that honour idempotency keys; when
   * the process dies between the work and its remembering, the work is done again under the same key.
   * @throws RunOver when the lease is lost or the run is over: nothing is started then
   */
  step<T extends StepResult>(name: string, work: (idempotencyKey: string) => Promise<T>): Promise<T>;
  /**
   * The final MongoDB writes and `processedAt` in one short transaction: exactly once, or not at all.
   * `work` may run several times (write conflicts): it may write through `session` and nothing else.
   * @throws RunOver when the lease is lost; an Error on a second call
   */
  commit(work: (session: ClientSession, db: Db) => Promise<void>): Promise<void>;
  /** Shown to people; at most 16 kB of JSON. */
  progress(value: StepResult): Promise<void>;
}

/** What JSON can hold, at most 64 kB; undefined is remembered as null. */
export type StepResult = unknown;

export interface EffectLog {
  info(fields: object, text: string): void;
  warn(fields: object, text: string): void;
  error(fields: object, text: string): void;
}

export interface Closable {
  close?: () => void | Promise<void>;
}

export interface ProcessorDefinition<S extends z.ZodType, E extends z.ZodType, R> {
  /** Names the Procfile line, the queue `twinbox.<name>`, the collection `inbox_<name>` and the BullMQ queue. */
  readonly name: string;
  /** Who looks at its dead messages. */
  readonly owner: string;
  /** Routing-key patterns of a topic exchange: words, `*` for one, `#` for any number. */
  readonly subscribes: readonly string[];
  /** What becomes of a message whose producer gave it no id. Default: a dead letter. `hash`: body, type and key are its id. */
  readonly withoutId?: 'dead-letter' | 'hash';
  /**
   * `until-processed` drops the body with the stamp: id and hash, by which duplicates are known, stay for the whole
   * retention, and what was processed cannot be run again. Default: for-retention.
   */
  readonly keepBody?: 'for-retention' | 'until-processed';
  readonly schema: S;
  /** A body that the schema accepts; the contract test sends it down the whole path. */
  readonly example: z.input<S>;
  /** Tries before a message is dead. */
  readonly attempts: number;
  readonly backoff: BackoffPolicy;
  /** Effects at the same time in each process. */
  readonly concurrency: number;
  /** Longest run of one effect, in milliseconds. */
  readonly timeoutMs: number;
  /** The actor's own environment variables; their faults are told at the start, with everybody's. */
  readonly settings?: E;
  /** Opens what every effect of the process shares (a pool, a client). Closed after the last effect. */
  readonly open?: (settings: z.infer<E>) => Promise<R>;
  readonly effect: (event: z.infer<S>, context: EffectContext<R>) => Promise<void>;
}

/** A definition that passed its checks. */
export type Processor = ProcessorDefinition<z.ZodType, z.ZodType, unknown>;

/** Known to every copy of this module: an installation may hold two, and a class or a private set would tell them apart. */
const CHECKED = Symbol.for('twinbox.processor');

const WORD = /^[A-Za-z0-9_-]+$/;
const NAME = /^[a-z][a-z0-9-]{0,39}$/;

/**
 * Declares an actor.
 * @throws {TypeError} naming every fault of the definition and its fix
 */
export function defineProcessor<S extends z.ZodType, R = undefined, E extends z.ZodType = z.ZodType>(
  definition: ProcessorDefinition<S, E, R>,
): Processor {
  const faults = faultsOf(definition as unknown as Processor);
  if (faults.length > 0) {
    throw new TypeError(`processor ${JSON.stringify(definition.name)} cannot work: ${faults.join('; ')}`);
  }
  return Object.freeze({ ...definition, [CHECKED]: true }) as unknown as Processor;
}

export function isProcessor(value: unknown): value is Processor {
  return typeof value === 'object' && value !== null && CHECKED in value;
}

function faultsOf(definition: Processor): string[] {
  const faults: string[] = [];
  const need = (holds: boolean, fault: string): void => {
    if (!holds) faults.push(fault);
  };
  need(
    typeof definition.name === 'string' && NAME.test(definition.name),
    'name must be 1 to 40 of a-z, 0-9 and -, beginning with a letter (it becomes part of queue and collection names)',
  );
  need(definition.owner.trim() !== '', 'owner must say who looks at its dead messages');
  need(definition.subscribes.length > 0, 'subscribes must name at least one routing key');
  for (const pattern of definition.subscribes) {
    const words = pattern.split('.');
    need(
      pattern.length <= 255 && words.every((word) => word === '*' || word === '#' || WORD.test(word)),
      `subscribes: ${JSON.stringify(pattern)} is no routing-key pattern (words of letters, digits, _ and -, or * or #, joined by dots)`,
    );
  }
  const whole = (name: 'attempts' | 'concurrency' | 'timeoutMs', max: number): void =>
    need(
      Number.isInteger(definition[name]) && definition[name] >= 1 && definition[name] <= max,
      `${name} must be a whole number from 1 to ${max}`,
    );
  whole('attempts', 1_000);
  whole('concurrency', 1_000);
  whole('timeoutMs', 2_147_483_647); // the longest timer Node has; a longer one fires at once
  const { firstMs, capMs } = definition.backoff;
  need(
    firstMs >= 1 && capMs >= firstMs,
    'backoff.firstMs must be at least 1, and backoff.capMs not below it',
  );
  const example = definition.schema.safeParse(definition.example);
  need(
    example.success,
    `example is refused by schema: ${example.error?.issues.map(({ path, message }) => `${path.join('.') || '(root)'}: ${message}`).join(', ') ?? ''}`,
  );
  return faults;
}
