import type { Client } from 'pg';

/** What to write into a row that was not confirmed. */
export interface RowFailure {
  readonly id: string;
  /** Milliseconds until the next try; null parks the row. */
  readonly retryInMs: number | null;
  readonly error: string;
}

export interface OutboxCounts {
  readonly pending: number;
  readonly parked: number;
  readonly published: number;
  /** Age of the oldest pending row, in seconds; null when there is none. */
  readonly oldestPendingSeconds: number | null;
}

/** True while the session may write: false on a standby, or when the server was made read-only. */
export async function isWritable(session: Client): Promise<boolean> {
  const { rows } = await session.query<{ readonly: string }>(
    `SELECT current_setting('transaction_read_only') AS readonly`,
  );
  return rows[0]?.readonly === 'off';
}

/** Marks what the broker confirmed. @returns how many rows were not marked before */
export async function markPublished(session: Client, ids: readonly string[]): Promise<number> {
  const { rowCount } = await session.query({
    name: 'outbox-mark',
    text: `UPDATE outbox SET published_at = clock_timestamp(), last_error = NULL, next_attempt_at = NULL
            WHERE id = ANY($1::bigint[]) AND published_at IS NULL AND parked_at IS NULL`,
    values: [ids],
  });
  return rowCount ?? 0;
}

/** Counts a failed attempt of each row: a later try, or parked. @returns how many rows it changed */
export async function recordFailures(session: Client, failures: readonly RowFailure[]): Promise<number> {
  const { rowCount } = await session.query(
    `UPDATE outbox o
        SET attempts = o.attempts + 1,
            last_error = f.error,
            next_attempt_at = clock_timestamp() + f.retry_in_ms * interval '1 millisecond',
            parked_at = CASE WHEN f.retry_in_ms IS NULL THEN clock_timestamp() END
       FROM unnest($1::bigint[], $2::float8[], $3::text[]) AS f(id, retry_in_ms, error)
      WHERE o.id = f.id AND o.published_at IS NULL AND o.parked_at IS NULL`,
    [
      failures.map(({ id }) => id),
      failures.map(({ retryInMs }) => retryInMs),
      failures.map(({ error }) => error),
    ],
  );
  return rowCount ?? 0;
}

/** How many rows stand where, and how old the oldest pending one is by Postgres' clock. */
export async function countRows(session: { query: Client['query'] }): Promise<OutboxCounts> {
  const { rows } = await session.query<OutboxCounts>(
    `SELECT count(*) FILTER (WHERE published_at IS NULL AND parked_at IS NULL)::int AS pending,
            count(*) FILTER (WHERE parked_at IS NOT NULL)::int AS parked,
            count(*) FILTER (WHERE published_at IS NOT NULL)::int AS published,
            extract(epoch FROM clock_timestamp() - min(created_at)
              FILTER (WHERE published_at IS NULL AND parked_at IS NULL))::float8 AS "oldestPendingSeconds"
       FROM outbox`,
  );
  return rows[0] as OutboxCounts;
}
