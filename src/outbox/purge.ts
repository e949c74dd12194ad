import { NOTED } from './audit.js';
import { isoText, onMigrated, type Session } from './filter.js';

/** SQLSTATE of a lock that was not to be had within lock_timeout. */
const LOCK_NOT_AVAILABLE = '55P03';

/**
 * By the index outbox_published, which a clock that moves within the statement could not use. Never by created_at: a row
 * that was not published survives any age.
 */
const old = (days: string): string =>
  `o.published_at < statement_timestamp() - ${days}::float8 * interval '1 day'`;

/** What cannot be had at once is somebody's at the moment, and is left for the next time. */
const deletion = (days: string, batchSize: string): string => `
  DELETE FROM outbox WHERE ctid = ANY(ARRAY(
    SELECT o.ctid FROM outbox o WHERE ${old(days)}
     ORDER BY o.published_at LIMIT ${batchSize} FOR UPDATE SKIP LOCKED))`;

/**
 * Deletes one batch of the rows that were published more than `olderThanDays` ago, the oldest first. Pending and
 * parked rows are never deleted.
 * @returns how many it deleted; fewer than `batchSize` when no more are to be had now: none is left, or others hold
 * them. A table that is locked for longer than the session's lock_timeout gives 0.
 */
export async function purgePublished(
  session: Session,
  olderThanDays: number,
  batchSize: number,
): Promise<number> {
  return unlessLocked(async () => {
    const { rowCount } = await session.query(deletion('$1', '$2'), [olderThanDays, batchSize]);
    return rowCount ?? 0;
  });
}

/** `purgePublished` by a person: the audit line counts the rows in the same transaction. */
export async function purgeAudited(
  session: Session,
  olderThanDays: number,
  batchSize: number,
  auditId: string,
): Promise<number> {
  return unlessLocked(async () => {
    const { rows } = await session.query<{ deleted: number }>(
      `WITH changed AS (${deletion('$2', '$3')} RETURNING id), ${NOTED}
       SELECT count(*)::int AS deleted FROM changed`,
      [auditId, olderThanDays, batchSize],
    );
    return rows[0]?.deleted ?? 0;
  });
}

export interface PurgePreview {
  readonly count: number;
  /** When the first and the last of them were published; null when there is none. */
  readonly oldest: string | null;
  readonly newest: string | null;
}

/** What a purge would delete now. */
export async function previewPurge(session: Session, olderThanDays: number): Promise<PurgePreview> {
  const { rows } = await onMigrated(
    session.query<PurgePreview>(
      `SELECT count, ${isoText('oldest')} AS oldest, ${isoText('newest')} AS newest
         FROM (SELECT count(*)::int AS count, min(o.published_at) AS oldest, max(o.published_at) AS newest
                 FROM outbox o WHERE ${old('$1')}) AS t`,
      [olderThanDays],
    ),
  );
  return rows[0] as PurgePreview;
}

async function unlessLocked(deleting: () => Promise<number>): Promise<number> {
  try {
    return await deleting();
  } catch (error) {
    if ((error as { code?: string }).code !== LOCK_NOT_AVAILABLE) throw error;
    return 0; // a migration, a dump or a person: the next purge finds the same rows
  }
}
