import { createHash } from 'node:crypto';
import type { FailureEnd, LastError } from '../inbox/index.js';
import { describe, toError } from '../runtime/errors.js';
import { backoffMs, type BackoffPolicy } from '../runtime/retry.js';

/** After a failed run: another try, at a time that is drawn once for the queue and the document; or death. */
export function afterFailure(
  failuresBefore: number,
  attempts: number,
  backoff: BackoffPolicy,
  random: number,
): FailureEnd {
  const failures = failuresBefore + 1;
  return failures >= attempts ? { dead: 'failed' } : { retryInMs: backoffMs(failures, backoff, random) };
}

/** What is remembered of an error: no stack, no secret, and a group of those that look alike. */
export function lastErrorOf(thrown: unknown, actor: string): LastError {
  const error = toError(thrown);
  const message = describe(error, 1_000).slice(error.name.length + 2);
  const alike = message
    .replace(/[0-9a-f]{8}-[0-9a-f-]{27}/gi, '<uuid>')
    .replace(/https?:\/\/\S+/g, '<url>')
    .replace(/"[^"]*"|'[^']*'/g, '<text>')
    .replace(/\d+/g, '<n>');
  const group = createHash('sha256').update(`${actor}|${error.name}|${alike}`).digest('hex').slice(0, 16);
  return { name: error.name, message, group };
}
