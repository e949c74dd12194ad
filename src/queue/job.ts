import { createHash } from 'node:crypto';
import type { JobsOptions } from 'bullmq';

/** All that a job carries; the inbox document knows the rest. */
export interface JobData {
  readonly messageId: string;
  readonly traceparent?: string;
}

export interface Ticket {
  readonly messageId: string;
  readonly generation: number;
  /** Tries that remain: what a job had before Redis was lost is not given twice. */
  readonly attemptsLeft: number;
  /** Back-off that remains, in milliseconds. */
  readonly delayMs?: number;
  readonly traceparent?: string;
}

/**
 * The id of a message's job. Hashed: as raw ids `active` or `meta` overwrite BullMQ's own keys, digits and
 * colons are refused, an empty one is replaced. A replay raises the generation, so nothing has to be removed
 * before it can be added.
 */
export function jobId(messageId: string, generation: number): string {
  const hash = `m-${createHash('sha256').update(messageId).digest('hex')}`;
  return generation === 1 ? hash : `${hash}.${generation}`;
}

/** The generation that a job's id carries. */
export function generationOf(id: string): number {
  const suffix = /\.(\d+)$/.exec(id)?.[1];
  return suffix === undefined ? 1 : Number(suffix);
}

/** Kept alike for every job: BullMQ applies the finishing job's option to the whole set. */
export const KEEP: Pick<JobsOptions, 'removeOnComplete' | 'removeOnFail' | 'stackTraceLimit'> = {
  removeOnComplete: { count: 1_000, age: 86_400 },
  removeOnFail: { count: 5_000, age: 30 * 86_400 },
  stackTraceLimit: 1,
};

/** As BullMQ's addBulk takes it. */
export function toJob(actor: string, ticket: Ticket): { name: string; data: JobData; opts: JobsOptions } {
  const { messageId, traceparent } = ticket;
  return {
    name: actor,
    data: { messageId, ...(traceparent === undefined ? {} : { traceparent }) },
    opts: jobOptions(ticket),
  };
}

function jobOptions({ messageId, generation, attemptsLeft, delayMs = 0 }: Ticket): JobsOptions {
  return {
    ...KEEP,
    jobId: jobId(messageId, generation),
    attempts: Math.max(1, attemptsLeft),
    backoff: { type: 'custom' },
    ...(delayMs > 0 ? { delay: Math.ceil(delayMs) } : {}),
  };
}
