import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { runRepair, type RepairRun } from '../../src/cli/repair-run.js';
import {
  beginAudit,
  listRows,
  migrateOutbox,
  openOperatorSession,
  openSession,
  previewRepair,
  purgePublished,
  readBacklog,
  readVacuumHolders,
  repairRows,
  resolveInstant,
  type OperatorSession,
  type OutboxSession,
} from '../../src/outbox/index.js';
import { freshDatabase } from '../support/stores.js';
import { until } from '../support/until.js';

let database: Awaited<ReturnType<typeof freshDatabase>>;
let pool: pg.Pool;
let session: OperatorSession;
let relaySession: OutboxSession;

beforeAll(async () => {
  database = await freshDatabase();
  await migrateOutbox(database.url);
  pool = new pg.Pool({ connectionString: database.url, max: 4 });
  pool.on('error', () => undefined);
  session = await openOperatorSession(database.url, 'test', { lockMs: 200 });
  relaySession = await openSession(database.url, 'test');
});
afterAll(async () => {
  await session.close();
  await relaySession.close();
  await pool.end();
  await database.drop();
});
beforeEach(() => pool.query('TRUNCATE outbox, outbox_audit RESTART IDENTITY'));

/** A session of somebody else, in the middle of a transaction. */
let other: pg.PoolClient | undefined;
afterEach(async () => {
  await other?.query('ROLLBACK');
  other?.release();
  other = undefined;
});
async function meanwhile(sql: string): Promise<pg.PoolClient> {
  other = await pool.connect();
  await other.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
  await other.query(sql);
  return other;
}

/** One row in every state there is, and their names by type. */
const EVERY_STATE = `
  INSERT INTO outbox (type, key, body, created_at, publish_after, published_at, attempts, next_attempt_at, parked_at, last_error)
  VALUES ('fresh', 'k', '', now(), NULL, NULL, 0, NULL, NULL, NULL),
         ('delayed', NULL, '', now(), now() + interval '1 day', NULL, 0, NULL, NULL, NULL),
         ('waiting', 'k', '', now(), NULL, NULL, 3, now() + interval '1 hour', NULL, 'NO_ROUTE x'),
         ('parked', 'k', '', now(), NULL, NULL, 24, NULL, now(), 'NO_ROUTE x'),
         ('parked-delayed', NULL, '', now(), now() + interval '1 day', NULL, 24, NULL, now(), 'the body has 9 bytes, more than MAX_BODY_BYTES = 8'),
         ('published', 'k', '', now(), NULL, now(), 2, NULL, NULL, NULL)`;

interface Row {
  type: string;
  event_id: string;
  attempts: number;
  published: boolean;
  parked: boolean;
  waits: boolean;
  later: boolean;
}
async function rows(): Promise<Row[]> {
  const found = await pool.query<Row>(
    `SELECT type, event_id, attempts, published_at IS NOT NULL AS published, parked_at IS NOT NULL AS parked,
            next_attempt_at IS NOT NULL AS waits, publish_after IS NOT NULL AS later FROM outbox ORDER BY id`,
  );
  return found.rows;
}
async function publish(count: number, at = '2026-03-01T12:00:00Z'): Promise<void> {
  await pool.query(
    `INSERT INTO outbox (type, body, published_at) SELECT 'order.placed', '', $2 FROM generate_series(1, $1)`,
    [count, at],
  );
}
const run = (over: Partial<RepairRun>): ReturnType<typeof runRepair> =>
  runRepair({
    session,
    repair: 'retry',
    filter: {},
    audit: { who: 'tester', command: 'test' },
    signal: new AbortController().signal,
    progress: () => undefined,
    ...over,
  });
const audited = async (): Promise<{ who: string; reason: string | null; filter: object; rows: number }[]> =>
  (await pool.query('SELECT who, reason, filter, rows FROM outbox_audit ORDER BY id')).rows as never;

test('a retry changes parked and waiting rows alone, keeps their ids, and is written down', async () => {
  await pool.query(EVERY_STATE);
  const before = await rows();
  expect((await previewRepair(session.client, 'retry', {})).count).toBe(3);

  const result = await run({ audit: { who: 'tester', command: 'test', reason: 'the queue is bound' } });

  expect(result).toEqual({ changed: 3, complete: true });
  expect(await rows()).toEqual(
    before.map((row) =>
      ['waiting', 'parked', 'parked-delayed'].includes(row.type)
        ? { ...row, attempts: 0, parked: false, waits: false }
        : row,
    ),
  );
  expect(await audited()).toEqual([{ who: 'tester', reason: 'the queue is bound', filter: {}, rows: 3 }]);
});

test('a row that fails again during a retry is not taken again', async () => {
  // More than are looked up at once, so that there is a second look.
  await pool.query(
    `INSERT INTO outbox (type, body, parked_at) SELECT 't', '', now() FROM generate_series(1, 20100)`,
  );
  let failing: Promise<pg.QueryResult> | undefined;
  const result = await run({
    progress: () => {
      failing ??= pool.query(
        `UPDATE outbox SET next_attempt_at = now(), attempts = 1 WHERE parked_at IS NULL`,
      );
    },
  });
  const failedAgain = (await failing)?.rowCount ?? 0;
  expect(failedAgain).toBeGreaterThanOrEqual(500);
  expect(result).toEqual({ changed: 20_100, complete: true });
  expect((await rows()).filter(({ attempts }) => attempts === 1)).toHaveLength(failedAgain);
});

test('R-14 a window of one microsecond holds exactly its row', async () => {
  await publish(1, '2026-03-01T12:00:00.123456Z');
  await publish(1, '2026-03-01T12:00:00.123457Z');
  const listed = await listRows(session.client, { filter: {}, state: 'published', limit: 10 });
  expect(listed.map(({ publishedAt }) => publishedAt)).toEqual([
    '2026-03-01T12:00:00.123457Z',
    '2026-03-01T12:00:00.123456Z',
  ]);
  const at = await resolveInstant(session.client, { iso: listed[1]!.publishedAt! });
  expect(at).toBe('2026-03-01T12:00:00.123456Z');

  const result = await run({ repair: 'republish', filter: { from: at, to: at } });

  expect(result.changed).toBe(1);
  expect((await rows()).map(({ published }) => published)).toEqual([false, true]);
});

test('an interrupted republish has done the lowest ids, and the same window is the rest', async () => {
  await publish(1_300);
  const filter = { from: '2026-03-01T12:00:00Z', to: '2026-03-01T12:00:00Z' };
  const stop = new AbortController();
  const first = await run({ repair: 'republish', filter, signal: stop.signal, progress: () => stop.abort() });
  expect(first.complete).toBe(false);
  expect(first.changed).toBeGreaterThan(0);
  expect(first.changed).toBeLessThan(1_300);
  expect((await rows()).map(({ published }) => published)).toEqual(
    Array.from({ length: 1_300 }, (_, index) => index >= first.changed),
  );
  // A relay publishes them meanwhile: they have left the window.
  await pool.query('UPDATE outbox SET published_at = clock_timestamp() WHERE published_at IS NULL');

  const second = await run({ repair: 'republish', filter });

  expect(second).toEqual({ changed: 1_300 - first.changed, complete: true });
  expect((await audited()).map((line) => line.rows)).toEqual([first.changed, second.changed]);
});

test('a repair that cannot have the table changes nothing, and counts nothing', async () => {
  await publish(3);
  const auditId = await beginAudit(session.client, { who: 'tester', command: 'test', filter: {} });
  await meanwhile('LOCK TABLE outbox IN SHARE MODE');
  await expect(repairRows(session.client, 'republish', {}, ['1', '2', '3'], auditId)).rejects.toMatchObject({
    code: '55P03',
  });
  await other?.query('ROLLBACK');
  expect((await rows()).every(({ published }) => published)).toBe(true);
  expect((await audited()).map((line) => line.rows)).toEqual([0]);
});

test('R-07 a purge takes what was published long ago, whatever its age otherwise; the rest survives', async () => {
  await pool.query(EVERY_STATE);
  await pool.query(`UPDATE outbox SET created_at = now() - interval '10 years'`);
  await pool.query(`UPDATE outbox SET parked_at = now() - interval '10 years' WHERE parked_at IS NOT NULL`);
  await pool.query(
    `INSERT INTO outbox (type, body, published_at) SELECT 'old', '', now() - interval '15 days' FROM generate_series(1, 25)`,
  );
  const purge = (): Promise<number> => purgePublished(relaySession.client, 14, 10);
  expect([await purge(), await purge(), await purge(), await purge()]).toEqual([10, 10, 5, 0]);
  expect((await rows()).map(({ type }) => type)).toEqual([
    'fresh',
    'delayed',
    'waiting',
    'parked',
    'parked-delayed',
    'published',
  ]);
});

test('a purge leaves a locked table for later, and locked rows to their owner', async () => {
  await publish(3);
  await meanwhile('LOCK TABLE outbox IN SHARE MODE');
  expect(await purgePublished(session.client, 14, 10)).toBe(0);
  const held = await pool.query(
    `SELECT FROM pg_locks WHERE relation = 'outbox'::regclass AND mode = 'ShareLock' AND granted`,
  );
  expect(held.rowCount).toBe(1);
  await other?.query('ROLLBACK');

  await other?.query('BEGIN');
  await other?.query('SELECT FROM outbox WHERE id = 2 FOR UPDATE');
  expect(await purgePublished(session.client, 14, 10)).toBe(2);
  await other?.query('ROLLBACK');
  expect(await purgePublished(session.client, 14, 10)).toBe(1);
});

test('the backlog is counted by what a row waits for, and its age from when it could go', async () => {
  await pool.query(EVERY_STATE);
  await pool.query(`UPDATE outbox SET created_at = now() - interval '3 days' WHERE type = 'delayed'`);
  await pool.query(`UPDATE outbox SET created_at = now() - interval '60 seconds' WHERE type = 'waiting'`);
  const { oldestSeconds, ...backlog } = await readBacklog(session.client);
  expect(backlog).toEqual({
    due: 1,
    retrying: 1,
    delayed: 1,
    andMore: false,
    parked: 2,
    parkedBy: [
      { reason: 'too-large', count: 1 },
      { reason: 'unroutable', count: 1 },
    ],
    publishedLastMinute: 1,
  });
  expect(oldestSeconds).toBeGreaterThanOrEqual(60);
  expect(oldestSeconds).toBeLessThan(3_600);
  await pool.query('TRUNCATE outbox');
  expect((await readBacklog(session.client)).oldestSeconds).toBeNull();
});

test('the transaction that holds back vacuum is found, and it does hold it back', async () => {
  await publish(500);
  const holding = await meanwhile('SELECT count(*) FROM outbox');
  const { rows: who } = await holding.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  await pool.query('DELETE FROM outbox');
  const dead = async (): Promise<number> => {
    await pool.query('VACUUM outbox');
    const { rows: stats } = await pool.query<{ dead: number }>(
      `SELECT n_dead_tup::int AS dead FROM pg_stat_user_tables WHERE relid = 'outbox'::regclass`,
    );
    return stats[0]!.dead;
  };
  await until('vacuum leaves the dead rows', async () => (await dead()) >= 500);

  const holders = await readVacuumHolders(session.client);

  const found = holders.find(({ pid }) => pid === who[0]!.pid)!;
  expect(found).toMatchObject({ kind: 'transaction', state: 'idle in transaction' });
  expect(found.transactions).toBeGreaterThan(0);
  expect(found.seconds).toBeGreaterThan(0);
  await holding.query('ROLLBACK');
  await until('vacuum removes them', async () => (await dead()) === 0);
  expect((await readVacuumHolders(session.client)).some(({ pid }) => pid === who[0]!.pid)).toBe(false);
});
