import { openSession, purgePublished } from '../outbox/index.js';
import { describe } from '../runtime/errors.js';
import type { Log } from '../runtime/log.js';
import { isOver, pause } from '../runtime/loop.js';

export interface PurgeDeps {
  readonly databaseUrl: string;
  readonly retentionDays: number;
  /** True while this relay is the one that purges: of all relays one owns slot 0. */
  readonly inCharge: () => boolean;
  readonly log: Log;
}

const EVERY_MS = 3_600_000;
const LOOK_MS = 2_000;
const BATCH = 1_000;
/** Between two batches: a purge of millions must leave the disk to the others. */
const REST_MS = 50;

/**
 * Deletes what was published longer ago than the retention, once an hour, in small batches on a session of its own:
 * a purge must never hold up a claim or a mark.
 */
export async function keepPurging(
  { databaseUrl, retentionDays, inCharge, log }: PurgeDeps,
  signal: AbortSignal,
): Promise<void> {
  let last = -Infinity;
  while (!isOver(signal)) {
    if (inCharge() && performance.now() - last > EVERY_MS) {
      last = performance.now();
      try {
        const deleted = await purge(databaseUrl, retentionDays, signal);
        if (deleted > 0)
          log.info({ event: 'relay.purged', rows: deleted }, `purged ${deleted} published rows`);
      } catch (error) {
        log.warn(
          { event: 'relay.purge.failed', err: error },
          `cannot purge, later again: ${describe(error)}`,
        );
      }
    }
    await pause(LOOK_MS, signal);
  }
}

async function purge(databaseUrl: string, retentionDays: number, signal: AbortSignal): Promise<number> {
  const session = await openSession(databaseUrl, 'twinbox-purge');
  try {
    let deleted = 0;
    while (!isOver(signal)) {
      const batch = await purgePublished(session.client, retentionDays, BATCH);
      deleted += batch;
      if (batch < BATCH) break;
      await pause(REST_MS, signal);
    }
    return deleted;
  } finally {
    await session.close();
  }
}
