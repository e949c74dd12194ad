import type pg from 'pg';
import { cpuSeconds, startMeter, type Cost } from '../cpu.js';
import { startOwned, type Owned } from '../owned.js';
import { round, sleep } from '../rounds.js';
import { BODY, type Bench, type Outbox } from '../stores.js';
import { fillRawTable } from './raw.js';

export interface Backlog {
  readonly bench: Bench;
  readonly pool: pg.Pool;
  /** The relay that owns this outbox. */
  readonly relay: Owned;
  readonly rows: number;
  /** Distinct keys; 0: rows without a key. */
  readonly keys: number;
  /** Leaves what was published before in the table. */
  readonly keep: boolean;
  readonly mailbox: { empty(): Promise<number> };
}

export interface Drained {
  readonly rate: number;
  readonly cpu: Cost;
}

const LOOK_MS = 50;

/**
 * A backlog that becomes visible in one commit, to the mark of its last row, by Postgres' clock. The relay runs
 * before and after: what is measured is relaying, not starting.
 * @throws when the broker does not hold exactly the backlog, or the relay has ended
 */
export async function backlogRun(backlog: Backlog): Promise<Drained> {
  const { bench, pool, relay, rows, keep, mailbox } = backlog;
  if (!keep) await pool.query('TRUNCATE outbox');
  await pool.query('CHECKPOINT');
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    await insertBacklog(client, backlog);
    const cost = await startMeter(bench, () => cpuSeconds([relay.pid]));
    await client.query('COMMIT');
    const began = (await client.query<{ at: string }>('SELECT clock_timestamp()::text AS at')).rows[0]?.at;
    await untilNothingIsPending(client, relay);
    const cpu = cost(rows);
    const took = await client.query<{ seconds: number }>(
      'SELECT extract(epoch FROM max(published_at) - $1::timestamptz)::float8 AS seconds FROM outbox',
      [began],
    );
    const held = await mailbox.empty();
    if (held !== rows) throw new Error(`the broker holds ${held} messages of ${rows}`);
    return { rate: round(rows / (took.rows[0]?.seconds ?? NaN), 0), cpu };
  } finally {
    client.release();
  }
}

async function insertBacklog(client: pg.PoolClient, { rows, keys }: Backlog): Promise<void> {
  await client.query(
    `INSERT INTO outbox (type, body, key)
     SELECT 'bench.event', $1, CASE WHEN $3 > 0 THEN 'key-' || n % greatest($3, 1) END FROM generate_series(1, $2) AS n`,
    [BODY, rows, keys],
  );
}

export interface DeepDrain {
  readonly rows: number;
  /** Messages a second over the first and over the last `part` of them, by the times of their marks. */
  readonly first: number;
  readonly last: number;
  readonly part: number;
}

/** A backlog so deep that the relay drains it for minutes, with no ANALYZE after it was written: does it slow down? */
export async function deepDrain(backlog: Backlog, part: number): Promise<DeepDrain> {
  const { pool, relay, rows, mailbox } = backlog;
  const client = await pool.connect();
  try {
    const { rows: before } = await client.query<{ id: string }>(
      'SELECT coalesce(max(id), 0) AS id FROM outbox',
    );
    await insertBacklog(client, backlog);
    // A million messages in a queue would measure the broker's disk.
    await untilNothingIsPending(client, relay, async () => {
      await mailbox.empty();
    });
    const { rows: took } = await client.query<{ first: number; last: number }>(
      `WITH marks AS (SELECT published_at AS at, row_number() OVER (ORDER BY published_at) AS n
                        FROM outbox WHERE id > $1)
       SELECT extract(epoch FROM max(at) FILTER (WHERE n <= $3) - min(at))::float8 AS first,
              extract(epoch FROM max(at) - min(at) FILTER (WHERE n > $2::int - $3::int))::float8 AS last FROM marks`,
      [before[0]?.id, rows, part],
    );
    const rate = (seconds: number | undefined): number => round(part / (seconds ?? NaN), 0);
    return { rows, first: rate(took[0]?.first), last: rate(took[0]?.last), part };
  } finally {
    await mailbox.empty();
    client.release();
  }
}

/** Asks by the partial indexes, so that looking costs next to nothing. */
async function untilNothingIsPending(
  client: pg.PoolClient,
  relay: Owned,
  meanwhile?: () => Promise<void>,
): Promise<void> {
  for (;;) {
    relay.check();
    await meanwhile?.();
    const { rows } = await client.query<{ some: boolean }>(
      `SELECT EXISTS (SELECT FROM outbox WHERE published_at IS NULL AND parked_at IS NULL
                       AND publish_after IS NULL AND next_attempt_at IS NULL AND key IS NULL)
           OR EXISTS (SELECT FROM outbox WHERE published_at IS NULL AND parked_at IS NULL
                       AND publish_after IS NULL AND next_attempt_at IS NULL AND key IS NOT NULL) AS some`,
    );
    if (rows[0]?.some === false) return;
    await sleep(LOOK_MS);
  }
}

/** The straightforward relay over `rows` rows, after a warm-up of its own, from its first mark to its last. */
export async function straightforwardRun(
  { env, pool }: Outbox,
  mailbox: { empty(): Promise<number> },
  rows: number,
): Promise<{ rate: number }> {
  const warmUp = Math.ceil(rows / 3);
  await fillRawTable(pool, rows + warmUp);
  const relay = await startOwned(['--import', 'tsx', 'bench/straightforward/relay.ts'], env);
  try {
    for (let left = true; left;) {
      await sleep(LOOK_MS);
      const answer = await pool.query<{ left: boolean }>(
        'SELECT EXISTS (SELECT FROM raw_outbox WHERE published_at IS NULL) AS left',
      );
      left = answer.rows[0]?.left === true;
    }
    // Its marks carry the start of their transaction: from batch to batch the difference is the same.
    const { rows: took } = await pool.query<{ seconds: number; count: number }>(
      `SELECT extract(epoch FROM max(published_at) - min(published_at))::float8 AS seconds,
              count(*) FILTER (WHERE published_at < last)::int AS count
         FROM raw_outbox, (SELECT max(published_at) AS last FROM raw_outbox) AS l WHERE id > $1`,
      [warmUp],
    );
    return { rate: round((took[0]?.count ?? NaN) / (took[0]?.seconds ?? NaN), 0) };
  } finally {
    await relay.stop('SIGKILL');
    await mailbox.empty();
  }
}
