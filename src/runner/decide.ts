import { createHash } from 'node:crypto';
import type { FailureEnd, LastError } from '../inbox/index.js';
import { describe, toError, withoutSecrets } from '../runtime/errors.js';
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

const LONGEST_MESSAGE = 8_000;
/** More is read than is kept, so that a credential at the cut is seen whole and scrubbed. */
const READ_BEYOND = 2_000;

/**
 * The error itself, or a copy of its name, message and place: a megabyte in each log line blocks the process, and
 * the log marks each error that it writes, which a frozen one does not let it.
 */
export function loggable(error: Error): Error {
  const { name, message, stack } = error;
  if (message.length <= LONGEST_MESSAGE)
    return Object.isExtensible(error) ? error : Object.assign(new Error(message), { name, stack });
  const read = message.slice(0, LONGEST_MESSAGE + READ_BEYOND);
  const short = `${withoutSecrets(read).slice(0, LONGEST_MESSAGE)}… (${message.length} characters)`;
  const at = stack?.indexOf(message) ?? -1;
  const frames = at < 0 ? '' : (stack ?? '').slice(at + message.length).slice(0, LONGEST_MESSAGE);
  return Object.assign(new Error(short), { name, stack: `${name}: ${short}${frames}` });
}
