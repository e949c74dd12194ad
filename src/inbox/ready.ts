import { ConfigurationError, describe, StoppedEarly } from '../runtime/errors.js';
import type { Log } from '../runtime/log.js';
import { isOver, pause, unlessStopped } from '../runtime/loop.js';
import { backoffMs } from '../runtime/retry.js';
import { checkInbox } from './indexes.js';
import type { Inbox } from './store.js';

const WHAT = 'the inbox could be reached';
const BACKOFF = { firstMs: 200, capMs: 5_000 };

/**
 * Waits until the inbox answers and has its indexes. Without the unique index it would
 * record twice, without the retention it would never forget.
 * @throws {ConfigurationError} when it was not migrated; {StoppedEarly} when `signal` aborts first
 */
export async function waitForInbox(
  inbox: Inbox,
  actors: readonly string[],
  retentionSeconds: number,
  log: Log,
  signal: AbortSignal,
): Promise<void> {
  for (let failures = 1; !isOver(signal); failures += 1) {
    try {
      // A server that is frozen answers after many seconds; a stop does not wait for that.
      await unlessStopped(signal, WHAT, check(inbox, actors, retentionSeconds));
      return;
    } catch (error) {
      if (error instanceof ConfigurationError || error instanceof StoppedEarly) throw error;
      log.warn({ event: 'inbox.unreachable', err: error }, `the inbox cannot be reached: ${describe(error)}`);
      await pause(backoffMs(failures, BACKOFF, Math.random()), signal);
    }
  }
  throw new StoppedEarly(`stopped before ${WHAT}`);
}

async function check(inbox: Inbox, actors: readonly string[], retentionSeconds: number): Promise<void> {
  await inbox.ping();
  await checkInbox(inbox, actors, retentionSeconds);
}
