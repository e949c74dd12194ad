import { ConfigurationError, describe } from '../runtime/errors.js';
import type { Log } from '../runtime/log.js';
import { isOver, pause } from '../runtime/loop.js';
import { backoffMs } from '../runtime/retry.js';
import { checkInbox } from './indexes.js';
import type { Inbox } from './store.js';

const BACKOFF = { firstMs: 200, capMs: 5_000 };

/**
 * Waits until the inbox answers and has its indexes, or `signal` aborts. Without the unique index it would
 * record twice, without the retention it would never forget.
 * @throws {ConfigurationError} when it was not migrated
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
      await inbox.ping();
      await checkInbox(inbox, actors, retentionSeconds);
      return;
    } catch (error) {
      if (error instanceof ConfigurationError) throw error;
      log.warn({ event: 'inbox.unreachable', err: error }, `the inbox cannot be reached: ${describe(error)}`);
      await pause(backoffMs(failures, BACKOFF, Math.random()), signal);
    }
  }
}
