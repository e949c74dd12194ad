import type { Binary, Document, WithId } from 'mongodb';
import type { Source } from '../message/index.js';

/** A message in the inbox of one actor. It alone says what is final; jobs are hints. */
export interface InboxDocument {
  messageId: string;
  bodyHash: string;
  type: string;
  key?: string;
  sequence?: number;
  /** Absent once it is processed, where the actor does not keep it. */
  body?: Binary;
  contentType?: string;
  contentEncoding?: string;
  headers: Record<string, string | number | boolean>;
  source: Source;
  createdAt?: Date;
  receivedAt: Date;
  correlationId?: string;
  traceparent?: string;
  /** Absent until the effect is done, and a BSON Date from then on: the TTL index expires nothing else. */
  processedAt?: Date;
  deadAt?: Date;
  deadReason?: DeadReason;
  lease?: { owner: string; since: Date; until: Date };
  /** When the sweeper looks at it next. */
  lookAt: Date;
  /** Claims, in all. */
  starts: number;
  /** Claims since the last recorded end: the message, or a neighbour, killed its process. */
  unended: number;
  failures: number;
  nextAttemptAt?: Date;
  /** Raised by a replay, and when a job blocks its id: the job's id carries it. */
  generation: number;
  lastError?: LastError;
  /** The last 10. */
  runs: Run[];
  steps?: Step[];
  progress?: unknown;
}

export type StoredDocument = WithId<InboxDocument>;

export type DeadReason = 'failed' | 'invalid' | 'crashed' | 'cancelled';

export interface LastError {
  name: string;
  message: string;
  /** Same for failures that look alike: actor, name and message without its numbers and ids. */
  group: string;
}

export interface Run {
  start: Date;
  end: Date;
  outcome: 'processed' | 'failed' | 'dead' | 'handed back';
  by: string;
}

export interface Step {
  name: string;
  key: string;
  result: unknown;
  at: Date;
}

/** What an unfinished document is, spelt as the partial indexes spell it: an index is used for nothing else. */
export const UNFINISHED: Document = Object.freeze({ processedAt: null, deadAt: null });

/** `NOW + ms` by the server's clock. (`$add` with a date is not everywhere; `$dateAdd` is, from 5.0 on.) */
export const nowPlus = (ms: number): Document => ({
  $dateAdd: { startDate: '$$NOW', unit: 'millisecond', amount: Math.max(0, Math.round(ms)) },
});

/** A value as it is: in a pipeline a string that begins with `$` would name a field. */
export const literal = (value: unknown): Document => ({ $literal: value });

/** The runs with this one behind them, the last 10 kept. Reads the lease, so it comes before its end. */
export const runsWith = (outcome: Run['outcome']): Document => ({
  $slice: [
    { $concatArrays: ['$runs', [{ start: '$lease.since', end: '$$NOW', outcome, by: '$lease.owner' }]] },
    -10,
  ],
});
