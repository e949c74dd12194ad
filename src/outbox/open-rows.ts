import type { Client } from 'pg';

/** The rows that somebody still has to care about. */
export interface OpenRows {
  readonly pending: number;
  readonly parked: number;
  /** Age of the oldest pending row, in seconds by Postgres' clock; null when there is none. */
  readonly oldestPendingSeconds: number | null;
}

/**
 * How many rows are pending and parked, by the partial indexes alone: what was published costs nothing, so
 * a page may ask every few seconds. (`countRows` counts the published ones too, and reads the whole table.)
 */
export async function countOpenRows(session: { query: Client['query'] }): Promise<OpenRows> {
  const { rows } = await session.query<OpenRows>(
    `SELECT pending.count AS pending, pending.age AS "oldestPendingSeconds", parked.count AS parked
       FROM (SELECT count(*)::int AS count,
                    greatest(0, extract(epoch FROM clock_timestamp() - min(created_at)))::float8 AS age
               FROM outbox WHERE published_at IS NULL AND parked_at IS NULL) AS pending,
            (SELECT count(*)::int AS count FROM outbox WHERE parked_at IS NOT NULL) AS parked`,
  );
  const counted = rows[0] as OpenRows;
  // greatest() leaves nulls out: without a row the age would be 0.
  return counted.pending === 0 ? { ...counted, oldestPendingSeconds: null } : counted;
}
