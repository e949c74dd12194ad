import pg from 'pg';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { inTransaction, migrateOutbox, writeEvent } from '../../src/outbox/index.js';
import { startProxy } from '../support/proxy.js';
import { freshDatabase } from '../support/stores.js';
import { until } from '../support/until.js';

let database: Awaited<ReturnType<typeof freshDatabase>>;
let pool: pg.Pool;

beforeAll(async () => {
  database = await freshDatabase();
  await migrateOutbox(database.url);
  pool = new pg.Pool({ connectionString: database.url, max: 4 });
  pool.on('error', () => undefined);
});
afterAll(async () => {
  await pool.end();
  await database.drop();
});
beforeEach(async () => {
  await pool.query('TRUNCATE outbox');
});

const EVENT = { type: 'order.placed', body: { orderId: 'o-1' } };
const written = async (): Promise<string[]> =>
  (await pool.query<{ type: string }>('SELECT type FROM outbox ORDER BY id')).rows.map(({ type }) => type);
const pidOf = async (client: pg.ClientBase): Promise<number> =>
  (await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')).rows[0]!.pid;

/** Ends the backend and waits until the server has forgotten it. */
async function kill(pid: number): Promise<void> {
  const { rows } = await pool.query<{ ok: boolean }>('SELECT pg_terminate_backend($1) AS ok', [pid]);
  expect(rows[0]?.ok).toBe(true);
  await until('the backend is gone', async () => {
    const { rowCount } = await pool.query('SELECT 1 FROM pg_stat_activity WHERE pid = $1', [pid]);
    return rowCount === 0;
  });
}

test('the result of the work is the answer, and the event is there when it committed, not before', async () => {
  const answer = await inTransaction(pool, async (tx) => {
    await writeEvent(tx, EVENT);
    expect(await written()).toEqual([]);
    return 'done';
  });
  expect(answer).toBe('done');
  expect(await written()).toEqual(['order.placed']);
});

test('an error of the business change takes its event along, and is thrown as it was', async () => {
  const own = new Error('the business said no');
  const thrown = inTransaction(pool, async (tx) => {
    await writeEvent(tx, EVENT);
    throw own;
  });
  await expect(thrown).rejects.toBe(own);
  expect(await written()).toEqual([]);
  expect(pool.idleCount).toBe(pool.totalCount); // the connection went back
});

test('an event that is refused leaves the transaction as it was', async () => {
  await inTransaction(pool, async (tx) => {
    await writeEvent(tx, EVENT);
    await expect(writeEvent(tx, { type: '', body: {} })).rejects.toThrow('type is empty');
    await writeEvent(tx, EVENT);
  });
  expect(await written()).toHaveLength(2);
});

test('an error that was swallowed in the transaction is not taken for a commit', async () => {
  await expect(
    inTransaction(pool, async (tx) => {
      await writeEvent(tx, EVENT);
      await tx.query('SELECT 1/0').catch(() => undefined);
    }),
  ).rejects.toThrow('the server answered ROLLBACK');
  expect(await written()).toEqual([]);
  // Behind a savepoint it may be swallowed.
  await inTransaction(pool, async (tx) => {
    await writeEvent(tx, EVENT);
    await tx.query('SAVEPOINT part');
    await tx.query('SELECT 1/0').catch(() => tx.query('ROLLBACK TO SAVEPOINT part'));
  });
  expect(await written()).toHaveLength(1);
});

test('an error that only COMMIT brings to light is thrown with its code', async () => {
  await pool.query(
    'CREATE TABLE part (id int PRIMARY KEY, whole int REFERENCES part DEFERRABLE INITIALLY DEFERRED)',
  );
  await expect(
    inTransaction(pool, async (tx) => {
      await writeEvent(tx, EVENT);
      await tx.query('INSERT INTO part VALUES (1, 2)');
    }),
  ).rejects.toMatchObject({ code: '23503' });
  expect(await written()).toEqual([]);
});

test('a connection that is killed inside a transaction rejects it, ends nothing, and is not used again', async () => {
  let killed = 0;
  await expect(
    inTransaction(pool, async (tx) => {
      await writeEvent(tx, EVENT);
      await kill((killed = await pidOf(tx)));
    }),
  ).rejects.toThrow();
  expect(await written()).toEqual([]);
  await inTransaction(pool, async (tx) => {
    expect(await pidOf(tx)).not.toBe(killed);
  });
});

test('an error of the work stays the one that is thrown, though the rollback fails as well', async () => {
  const own = new Error('the business said no');
  let lost: pg.PoolClient | undefined;
  const removed: unknown[] = [];
  pool.once('remove', (client) => removed.push(client));
  const thrown = inTransaction(pool, async (tx) => {
    lost = tx;
    await writeEvent(tx, EVENT);
    await kill(await pidOf(tx));
    throw own;
  });
  await expect(thrown).rejects.toBe(own);
  await until('the pool has thrown it away', () => removed.includes(lost));
  expect(await written()).toEqual([]);
});

test('a COMMIT that is never answered rejects, and its connection goes back to nobody', async () => {
  const url = new URL(database.url);
  const proxy = await startProxy({ host: url.hostname, port: Number(url.port) });
  url.hostname = '127.0.0.1';
  url.port = String(proxy.port);
  const through = new pg.Pool({ connectionString: url.href, max: 1, query_timeout: 1_000 });
  through.on('error', () => undefined);
  try {
    await expect(
      inTransaction(through, async (tx) => {
        await writeEvent(tx, EVENT);
        proxy.freeze('both');
      }),
    ).rejects.toThrow('timeout');
    expect(through.totalCount).toBe(0);
  } finally {
    proxy.reset();
    await through.end();
    await proxy.close();
  }
});

test('a transaction that the work ends itself is noticed; what follows its end is refused', async () => {
  for (const end of ['COMMIT', 'ROLLBACK']) {
    await expect(inTransaction(pool, (tx) => tx.query(end))).rejects.toThrow(
      'the transaction was ended inside',
    );
    await expect(
      inTransaction(pool, async (tx) => {
        await tx.query(end);
        await writeEvent(tx, EVENT);
      }),
    ).rejects.toThrow('the client is in no transaction');
  }
  expect(await written()).toEqual([]);
});

test('nested: a tx in the place of the pool is refused, with what to do', async () => {
  await expect(
    inTransaction(pool, (tx) => inTransaction(tx as unknown as pg.Pool, (inner) => writeEvent(inner, EVENT))),
  ).rejects.toThrow(/takes a pg Pool: inside a transaction hand on its tx/);
  expect(await written()).toEqual([]);
});

test('a client of one’s own writes between BEGIN and COMMIT, and nowhere else', async () => {
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  try {
    await expect(writeEvent(client, EVENT)).rejects.toThrow('the client is in no transaction');
    await client.query('BEGIN');
    await writeEvent(client, EVENT);
    await client.query('COMMIT');
    await expect(writeEvent(client, EVENT)).rejects.toThrow('the client is in no transaction');
    await expect(writeEvent(pool, EVENT)).rejects.toThrow('tx is a Pool');
  } finally {
    await client.end();
  }
  expect(await written()).toHaveLength(1);
});
