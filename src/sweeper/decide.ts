import type { DueDocument } from '../inbox/index.js';
import type { JobSight } from '../queue/index.js';

/** What the sweeper does about one unfinished document. */
export type Move =
  /** It waits, runs or will run: look again later. */
  | { readonly kind: 'leave'; readonly lookInMs: number }
  /** Nothing would ever run it: a job with the tries and the delay that remain. */
  | { readonly kind: 'add'; readonly delayMs: number }
  /** A hash without a list blocks the job's id. */
  | { readonly kind: 'replace orphan'; readonly delayMs: number }
  /** A job that ended, or that nobody runs, blocks the id: the next generation has another. */
  | { readonly kind: 'next generation'; readonly delayMs: number; readonly was: JobSight }
  /** Its attempts are used up and nobody wrote it down. */
  | { readonly kind: 'bury' };

export interface SweepPolicy {
  readonly minAgeMs: number;
  /** Longest time between two looks at the same message. */
  readonly maxLookMs: number;
  readonly leaseMs: number;
}

/**
 * The document first, then its job's real state. Only the document's own count makes it dead, never a job's.
 * @param attempts of the actor; undefined when its file cannot be loaded
 * @param now by MongoDB's clock
 */
export function decide(
  document: DueDocument,
  job: JobSight,
  attempts: number | undefined,
  now: Date,
  policy: SweepPolicy,
): Move {
  const { lease, failures, nextAttemptAt, receivedAt } = document;
  const leaseLeftMs = lease === undefined ? 0 : lease.until.getTime() - now.getTime();
  if (leaseLeftMs > 0) return { kind: 'leave', lookInMs: leaseLeftMs };
  if (attempts === undefined) return { kind: 'leave', lookInMs: policy.minAgeMs };
  if (failures >= attempts) return { kind: 'bury' };
  const delayMs = Math.max(0, (nextAttemptAt?.getTime() ?? 0) - now.getTime());
  const ageMs = now.getTime() - receivedAt.getTime();
  // An honest backlog is looked at ever more rarely: each look doubles a message's age at most.
  const leave: Move = {
    kind: 'leave',
    lookInMs: Math.max(delayMs, Math.min(policy.maxLookMs, Math.max(policy.minAgeMs, ageMs))),
  };
  switch (job) {
    case 'absent':
      return { kind: 'add', delayMs };
    case 'orphan':
      return { kind: 'replace orphan', delayMs };
    case 'waiting':
    case 'delayed':
      return leave;
    case 'active': {
      // Fetched and not claimed yet, or its process died: BullMQ's stall check brings it back within a lease or
      // so. Longer than two without a live lease, and nobody runs it. (A worker that was just about to claim it
      // after a long wait in the queue finds another generation, and the new job runs.)
      const idleMs = now.getTime() - (lease?.until ?? receivedAt).getTime();
      if (idleMs > 2 * policy.leaseMs) return { kind: 'next generation', delayMs, was: job };
      return { kind: 'leave', lookInMs: policy.leaseMs };
    }
    case 'completed':
    case 'failed':
      return { kind: 'next generation', delayMs, was: job };
  }
}
