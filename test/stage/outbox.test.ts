import { createHash, randomUUID } from 'node:crypto';
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
  selectPending,
  writeEvent,
  type OutboxSession,
} from '../../src/outbox/index.js';
import { ConfigurationError } from '../../src/runtime/errors.js';
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

const event = (over: object = {}): Parameters<typeof writeEvent>[1] => ({
  type: 'order.placed',
  body: { orderId: 'o-1' },
  ...over,
});

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

test('an event is there when its transaction commits, with everything it was given', async () => {
  const eventId = randomUUID();
  const written = await inTransaction(pool, async (tx) => {
    const row = await writeEvent(
      tx,
      event({ eventId, key: 'o-1', routingKey: 'orders', headers: { tenant: 'blue' } }),
    );
    expect(await selectPending(session.client, 10)).toEqual([]); // not before the commit
    return row;
  });
  const [row] = await selectPending(session.client, 10);
  expect(row).toMatchObject({
    id: written.id,
    eventId,
    type: 'order.placed',
    routingKey: 'orders',
    key: 'o-1',
    contentType: 'application/json',
    headers: { tenant: 'blue' },
    attempts: 0,
  });
  expect(JSON.parse(row!.body.toString())).toEqual({ orderId: 'o-1' });
  expect(Math.abs(row!.createdAtMs - Date.now())).toBeLessThan(60_000);
});

test('an error of the business change takes its event along', async () => {
  await expect(
    inTransaction(pool, async (tx) => {
      await writeEvent(tx, event());
      throw new Error('the business said no');
    }),
  ).rejects.toThrow('the business said no');
  expect(await countRows(pool)).toMatchObject({ pending: 0, published: 0 });
});

test('an error that was swallowed in the transaction is not taken for a commit', async () => {
  await expect(
    inTransaction(pool, async (tx) => {
      await writeEvent(tx, event());
      await tx.query('SELECT 1/0').catch(() => undefined);
    }),
  ).rejects.toThrow('the server answered ROLLBACK');
  expect(await countRows(pool)).toMatchObject({ pending: 0 });
});

test('a connection that is killed inside a transaction rejects it, ends nothing, and is not used again', async () => {
  let killed = 0;
  await expect(
    inTransaction(pool, async (tx) => {
      await writeEvent(tx, event());
      const { rows } = await tx.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
      killed = rows[0]!.pid;
      const { rows: answer } = await pool.query<{ ok: boolean }>('SELECT pg_terminate_backend($1) AS ok', [
        killed,
      ]);
      expect(answer[0]?.ok).toBe(true);
      await until('the backend is gone', async () => {
        const { rowCount } = await pool.query('SELECT 1 FROM pg_stat_activity WHERE pid = $1', [killed]);
        return rowCount === 0;
      });
    }),
  ).rejects.toThrow();
  expect(await countRows(pool)).toMatchObject({ pending: 0 });
  await inTransaction(pool, async (tx) => {
    const { rows } = await tx.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
    expect(rows[0]?.pid).not.toBe(killed);
  });
});

test('what cannot be sent is refused before it is written', async () => {
  for (const headers of [{ CC: 'x' }, { BCC: 'x' }])
    await expect(writeEvent(pool, event({ headers }))).rejects.toThrow('have a meaning for the broker');
  await expect(writeEvent(pool, event({ body: undefined }))).rejects.toThrow('body is undefined');
  await expect(writeEvent(pool, event({ type: 'x'.repeat(256) }))).rejects.toThrow('outbox_type_check');
  await expect(writeEvent(pool, event({ key: 'k', publishAfter: new Date() }))).rejects.toThrow(
    'outbox_delay_has_no_key',
  );
  const eventId = randomUUID();
  await writeEvent(pool, event({ eventId }));
  await expect(writeEvent(pool, event({ eventId }))).rejects.toThrow('duplicate key');
  expect(await countRows(pool)).toMatchObject({ pending: 1 });
});

test('other languages write by plain SQL or by the function', async () => {
  await pool.query(`INSERT INTO outbox (type, body) VALUES ('plain', '{}')`);
  const { rows } = await pool.query<{ id: string }>(
    `SELECT outbox_write('order.placed', '{"orderId":"o-1"}', key => 'o-1', headers => '{"a":1}') AS id`,
  );
  const written = await selectPending(session.client, 10);
  expect(written.map(({ type }) => type)).toEqual(['plain', 'order.placed']);
  expect(written[1]).toMatchObject({ eventId: rows[0]?.id, key: 'o-1', headers: { a: 1 } });
  expect(JSON.parse(written[1]!.body.toString())).toEqual({ orderId: 'o-1' });
  for (const name of ['CC', 'BCC'])
    await expect(
      pool.query(`SELECT outbox_write('t', '{}', headers => jsonb_build_object($1::text, 'x'))`, [name]),
    ).rejects.toThrow('have a meaning for the broker');
});

test('only what is due is pending, in the order of ids', async () => {
  await pool.query(
    `INSERT INTO outbox (type, body, publish_after, next_attempt_at, published_at, parked_at)
     VALUES ('now', '', NULL, NULL, NULL, NULL), ('later', '', now() + interval '1 hour', NULL, NULL, NULL),
            ('waits', '', NULL, now() + interval '1 hour', NULL, NULL), ('done', '', NULL, NULL, now(), NULL),
            ('parked', '', NULL, NULL, NULL, now()), ('due', '', now(), now(), NULL, NULL)`,
  );
  expect((await selectPending(session.client, 10)).map(({ type }) => type)).toEqual(['now', 'due']);
  expect(await selectPending(session.client, 1)).toHaveLength(1);
  expect(await countRows(pool)).toMatchObject({ pending: 4, parked: 1, published: 1 });
});

test('a row is marked once; a failure never touches what is published or parked', async () => {
  const [first, second] = [await writeEvent(pool, event()), await writeEvent(pool, event())];
  expect(await markPublished(session.client, [first.id])).toBe(1);
  expect(await markPublished(session.client, [first.id])).toBe(0);
  expect(await recordFailures(session.client, [{ id: first.id, retryInMs: 1, error: 'late' }])).toBe(0);

  expect(await recordFailures(session.client, [{ id: second.id, retryInMs: 60_000, error: 'a' }])).toBe(1);
  expect(await selectPending(session.client, 10)).toEqual([]);
  expect(await recordFailures(session.client, [{ id: second.id, retryInMs: null, error: 'b' }])).toBe(1);
  expect(await markPublished(session.client, [second.id])).toBe(0);
  const { rows } = await pool.query(
    'SELECT attempts, last_error, parked_at IS NOT NULL AS parked, next_attempt_at FROM outbox WHERE id = $1',
    [second.id],
  );
  expect(rows[0]).toEqual({ attempts: 2, last_error: 'b', parked: true, next_attempt_at: null });
});

test('R-13 the claim walks the pending index beside 200,000 published and 2,000 pending rows, without an ANALYZE', async () => {
  await pool.query('ALTER TABLE outbox SET (autovacuum_enabled = false)');
  await pool.query(
    `INSERT INTO outbox (type, body, published_at) SELECT 't', '\\x7b7d', now() FROM generate_series(1, 200000)`,
  );
  await pool.query(`INSERT INTO outbox (type, body) SELECT 't', '\\x7b7d' FROM generate_series(1, 2000)`);

  // The plan of the very statement that selectPending sends.
  let statement = '';
  const spy = {
    query: (text: string) => {
      statement = text;
      return Promise.resolve({ rows: [] });
    },
  };
  await selectPending(spy as unknown as pg.Client, 200);
  const { rows } = await session.client.query<{ 'QUERY PLAN': string }>(
    `EXPLAIN (ANALYZE, BUFFERS) ${statement}`,
    [200],
  );
  const plan = rows.map((row) => row['QUERY PLAN']).join('\n');
  expect(plan).toContain('outbox_pending');
  expect(plan).not.toMatch(/Seq Scan|Sort|outbox_pkey/);

  const began = performance.now();
  expect(await selectPending(session.client, 200)).toHaveLength(200);
  expect(performance.now() - began).toBeLessThan(200);
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
  expect((await through.client.query('SHOW tcp_keepalives_idle')).rows).toEqual([
    { tcp_keepalives_idle: '15' },
  ]);
  proxy.reset();
  await until('the session knows', () => through.gone.aborted);
  await through.close();

  proxy.freeze('both');
  await expect(openSession(url.href, 'test')).rejects.toThrow(/timeout|timed out/);
  expect(proxy.accepted).toBe(2);
  await until('no connection is left', () => proxy.open === 0);
});
