import { NOTED } from './audit.js';
import { condition, isoText, onMigrated, SINCE, type RowFilter, type Session } from './filter.js';

/**
 * `retry`: parked rows and those that wait after a failure become due at once. `republish`: published rows are
 * pending again.
 */
export type Repair = 'retry' | 'republish';

/** What a repair would change. */
export interface RepairPreview {
  readonly count: number;
  /** Most first, at most twenty. */
  readonly byType: readonly { readonly type: string; readonly count: number }[];
  /** Since when the first and the last of them are what they are; null when there is none. */
  readonly oldest: string | null;
  readonly newest: string | null;
  /** The highest id of them: rows beyond came later and are not meant. Null when there is none. */
  readonly lastId: string | null;
  /** The first few event ids, in the order of the repair. */
  readonly sample: readonly string[];
}

const SAMPLE = 5;

/** Which rows a repair may change at all; every write is guarded by it. */
const CHANGES: Readonly<
  Record<Repair, { readonly rows: string; readonly since: string; readonly set: string }>
> = {
  retry: {
    rows: 'o.published_at IS NULL AND (o.parked_at IS NOT NULL OR o.next_attempt_at IS NOT NULL)',
    since: SINCE,
    set: 'parked_at = NULL, next_attempt_at = NULL, attempts = 0',
  },
  republish: {
    rows: 'o.published_at IS NOT NULL',
    since: 'o.published_at',
    set: 'published_at = NULL, next_attempt_at = NULL, attempts = 0, last_error = NULL',
  },
};

export async function previewRepair(
  session: Session,
  repair: Repair,
  filter: RowFilter,
): Promise<RepairPreview> {
  const { rows: guard, since } = CHANGES[repair];
  const values: unknown[] = [];
  const where = `${guard} AND ${condition(filter, values, since)}`;
  const counted = await onMigrated(
    session.query<Omit<RepairPreview, 'byType' | 'sample'>>(
      `SELECT count, last_id::text AS "lastId", ${isoText('oldest')} AS oldest, ${isoText('newest')} AS newest
         FROM (SELECT count(*)::int AS count, max(o.id) AS last_id, min(${since}) AS oldest, max(${since}) AS newest
                 FROM outbox o WHERE ${where}) AS t`,
      values,
    ),
  );
  const byType = await session.query<{ type: string; count: number }>(
    `SELECT o.type, count(*)::int AS count FROM outbox o WHERE ${where} GROUP BY o.type ORDER BY 2 DESC, 1 LIMIT 20`,
    values,
  );
  const sample = await session.query<{ eventId: string }>(
    `SELECT o.event_id::text AS "eventId" FROM outbox o WHERE ${where} ORDER BY o.id LIMIT ${SAMPLE}`,
    values,
  );
  return {
    ...(counted.rows[0] as Omit<RepairPreview, 'byType' | 'sample'>),
    byType: byType.rows,
    sample: sample.rows.map(({ eventId }) => eventId),
  };
}

/** How many rows of the filter were published more than `seconds` ago, by Postgres' clock. */
export async function countPublishedBefore(
  session: Session,
  filter: RowFilter,
  seconds: number,
): Promise<number> {
  const { rows: guard, since } = CHANGES.republish;
  const values: unknown[] = [seconds];
  const where = condition(filter, values, since);
  const { rows } = await session.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM outbox o
      WHERE ${guard} AND o.published_at < statement_timestamp() - $1::float8 * interval '1 second' AND ${where}`,
    values,
  );
  return rows[0]?.count ?? 0;
}

/** The next rows of a repair after `afterId`, in the order of their ids: the order in which they were written. */
export async function selectForRepair(
  session: Session,
  repair: Repair,
  filter: RowFilter,
  afterId: string,
  limit: number,
): Promise<string[]> {
  const { rows: guard, since } = CHANGES[repair];
  const values: unknown[] = [afterId, limit];
  const { rows } = await session.query<{ id: string }>(
    `SELECT o.id::text AS id FROM outbox o
      WHERE o.id > $1::bigint AND ${guard} AND ${condition(filter, values, since)}
      ORDER BY o.id LIMIT $2`,
    values,
  );
  return rows.map(({ id }) => id);
}

/**
 * Repairs these rows, where they still are what the repair is for and the filter means them; the audit line counts them in the
 * same transaction.
 * @returns how many it changed
 * @throws 55P03 when another session holds one of them for longer than the session's lock_timeout: nothing is changed then
 */
export async function repairRows(
  session: Session,
  repair: Repair,
  filter: RowFilter,
  ids: readonly string[],
  auditId: string,
): Promise<number> {
  const { rows: guard, since, set } = CHANGES[repair];
  const values: unknown[] = [auditId, ids];
  const { rows } = await session.query<{ changed: number }>(
    `WITH changed AS (
       UPDATE outbox o SET ${set}
        WHERE o.id = ANY($2::bigint[]) AND ${guard} AND ${condition(filter, values, since)}
       RETURNING o.id),
     ${NOTED}
     SELECT count(*)::int AS changed FROM changed`,
    values,
  );
  return rows[0]?.changed ?? 0;
}
