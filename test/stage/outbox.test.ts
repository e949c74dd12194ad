import { createHash } from 'node:crypto';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import {
  checkMigrated,
  countRows,
  inTransaction,
  markPublished,
  migrateOutbox,
  openSession,
  recordFailures,
  writeEvent,
  type OutboxEvent,
  type OutboxSession,
} from '../../src/outbox/index.js';
import { ConfigurationError } from '../../src/runtime/errors.js';
import { pendingRows } from '../support/pending.js';
import { startProxy } from '../support/proxy.js';
import { freshStores, type Stores } from '../support/stores.js';
import { until } from '../support/until.js';

let stores: Stores;
let pool: pg.Pool;
let session: OutboxSession;

beforeAll(async () => {
  stores = await freshStores();
  await migrateOutbox(stores.env.DATABASE_URL);
  pool = new pg.Pool({ connectionString: stores.env.DATABASE_URL, max: 4 });
  pool.on('error', () => undefined);
  session = await openSession(stores.env.DATABASE_URL, 'test');
});
afterAll(async () => {
  await session.close();
  await pool.end();
  await stores.drop();
});
beforeEach(async () => {
  await pool.query('TRUNCATE outbox');
});

const event = (): OutboxEvent => ({ type: 'order.placed', body: { orderId: 'o-1' } });

test('migrating again changes nothing', async () => {
  const migrations = await migrateOutbox(stores.env.DATABASE_URL);
  expect(migrations.length).toBeGreaterThan(0);
  expect(migrations.every(({ applied }) => !applied)).toBe(true);
});

test('two that migrate an empty database at once: one applies, neither fails', async () => {
  const empty = await freshStores();
  try {
    const both = await Promise.all([
      migrateOutbox(empty.env.DATABASE_URL),
      migrateOutbox(empty.env.DATABASE_URL),
    ]);
    expect(both.map((all) => all.filter(({ applied }) => applied).length).sort()).toEqual([
      0,
      both[0].length,
    ]);
  } finally {
    await empty.drop();
  }
});

test('a migration that has changed since it was applied is refused, with the fix', async () => {
  const { rows } = await pool.query<{ name: string; sha256: string }>('SELECT * FROM twinbox_migration');
  const applied = rows[0]!;
  const other = createHash('sha256').update('other').digest('hex');
  await pool.query('UPDATE twinbox_migration SET sha256 = $1 WHERE name = $2', [other, applied.name]);
  try {
    await expect(migrateOutbox(stores.env.DATABASE_URL)).rejects.toThrow(
      `migration ${applied.name} was applied in another form`,
    );
  } finally {
    await pool.query('UPDATE twinbox_migration SET sha256 = $1 WHERE name = $2', [
      applied.sha256,
      applied.name,
    ]);
  }
});

test('a database that was never migrated is told with the command', async () => {
  const empty = await freshStores();
  const bare = await openSession(empty.env.DATABASE_URL, 'test');
  try {
    const fault = await checkMigrated(bare.client).catch((error: unknown) => error);
    expect(fault).toBeInstanceOf(ConfigurationError);
    expect((fault as Error).message).toContain('twinbox migrate');
  } finally {
    await bare.close();
    await empty.drop();
  }
});

test('only what is due is pending, in the order of ids', async () => {
  await pool.query(
    `INSERT INTO outbox (type, body, publish_after, next_attempt_at, published_at, parked_at)
     VALUES ('now', '', NULL, NULL, NULL, NULL), ('later', '', now() + interval '1 hour', NULL, NULL, NULL),
            ('waits', '', NULL, now() + interval '1 hour', NULL, NULL), ('done', '', NULL, NULL, now(), NULL),
            ('parked', '', NULL, NULL, NULL, now()), ('due', '', now(), now(), NULL, NULL)`,
  );
  expect((await pendingRows(session.client)).map(({ type }) => type)).toEqual(['now', 'due']);
  expect(await countRows(pool)).toMatchObject({ pending: 4, parked: 1, published: 1 });
});

test('a row is marked once; a failure never touches what is published or parked', async () => {
  const [first, second] = await inTransaction(
    pool,
    async (tx) => [await writeEvent(tx, event()), await writeEvent(tx, event())] as const,
  );
  expect(await markPublished(session.client, [first.id])).toBe(1);
  expect(await markPublished(session.client, [first.id])).toBe(0);
  expect(await recordFailures(session.client, [{ id: first.id, retryInMs: 1, error: 'late' }])).toBe(0);

  expect(await recordFailures(session.client, [{ id: second.id, retryInMs: 60_000, error: 'a' }])).toBe(1);
  expect(await pendingRows(session.client)).toEqual([]);
  expect(await recordFailures(session.client, [{ id: second.id, retryInMs: null, error: 'b' }])).toBe(1);
  expect(await markPublished(session.client, [second.id])).toBe(0);
  const { rows } = await pool.query(
    'SELECT attempts, last_error, parked_at IS NOT NULL AS parked, next_attempt_at FROM outbox WHERE id = $1',
    [second.id],
  );
  expect(rows[0]).toEqual({ attempts: 2, last_error: 'b', parked: true, next_attempt_at: null });
});

let ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.reverse()) await end();
  ends = [];
});

test('a session says when it is gone, and a server that is silent is given up with no connection left', async () => {
  const url = new URL(stores.env.DATABASE_URL);
  const proxy = await startProxy({ host: url.hostname, port: Number(url.port) });
  ends.push(() => proxy.close());
  url.hostname = '127.0.0.1';
  url.port = String(proxy.port);

  const through = await openSession(url.href, 'test');
  expect((await through.client.query('SHOW statement_timeout')).rows).toEqual([{ statement_timeout: '5s' }]);
  proxy.reset();
  await until('the session knows', () => through.gone.aborted);
  await through.close();

  proxy.freeze('both');
  await expect(openSession(url.href, 'test')).rejects.toThrow(/timeout|timed out/);
  expect(proxy.accepted).toBe(2);
  await until('no connection is left', () => proxy.open === 0);
});
