import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { openBacklog, type Backlog } from '../support/backlog.js';
import { startPgBouncer, type PgBouncer, type PoolMode } from '../support/pgbouncer.js';
import { killAll } from '../support/processes.js';
import { freshStores, type Stores } from '../support/stores.js';
import { until } from '../support/until.js';

let stores: Stores;
let backlog: Backlog;
let pooler: PgBouncer | undefined;

beforeAll(async () => {
  stores = await freshStores();
  backlog = await openBacklog(stores.env);
});
afterAll(async () => {
  await backlog.close();
  await stores.drop();
});
afterEach(async () => {
  await killAll();
  await pooler?.close();
  pooler = undefined;
});

/** Advisory locks of this database, whoever holds them. */
async function advisoryLocks(): Promise<number> {
  const { rows } = await backlog.pool.query<{ n: number }>(
    `SELECT count(*)::int AS n FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
      WHERE locktype = 'advisory' AND datname = current_database()`,
  );
  return rows[0]?.n ?? 0;
}

const VARIANTS: [string, PoolMode, Record<string, string>][] = [
  ['transaction mode', 'transaction', {}],
  ['transaction mode, servers taken in turn', 'transaction', { server_round_robin: '1' }],
  ['transaction mode, one server for all', 'transaction', { default_pool_size: '1' }],
  [
    'transaction mode, three servers kept, taken in turn',
    'transaction',
    { server_round_robin: '1', min_pool_size: '3' },
  ],
  ['statement mode', 'statement', {}],
];

test.each(VARIANTS)(
  'R-11 behind a pooler in %s the relay refuses to start, names the fix, and leaves no lock behind',
  async (_, mode, settings) => {
    pooler = await startPgBouncer(stores.env.DATABASE_URL, mode, settings);
    for (const [name, value] of Object.entries({ pool_mode: mode, ...settings }))
      expect(await pooler.setting(name)).toBe(value);
    await backlog.write(10);
    const before = pooler.logins();
    const relay = backlog.start({ DATABASE_URL: pooler.url });
    let exit: number | string | undefined;
    void relay.ended.then((code) => (exit = code));
    await until('it has ended', () => exit !== undefined, { ms: 10_000 });
    expect(exit).toBe(78);
    expect(pooler.logins()).toBeGreaterThan(before); // it did speak to the pooler
    const said = relay.text.join('\n');
    expect(said).toContain('transaction');
    expect(said).toContain('DATABASE_URL');
    expect(said).toMatch(/direct/);
    expect(said).toMatch(/session/);
    // The pooler still runs, and with it the sessions that it lent to the relay.
    expect(await advisoryLocks()).toBe(0);
    expect(await backlog.published()).toBe(0);
    expect(await backlog.take()).toEqual([]);
    await backlog.pool.query('TRUNCATE outbox');
  },
);

test('R-11 behind a pooler in session mode it works, and its locks end with it', async () => {
  pooler = await startPgBouncer(stores.env.DATABASE_URL, 'session');
  expect(await pooler.setting('pool_mode')).toBe('session');
  const before = pooler.logins();
  const relay = backlog.start({ DATABASE_URL: pooler.url });
  await backlog.write(1_000);
  expect((await backlog.account({ copies: 0 })).missing).toEqual([]);
  expect(pooler.logins()).toBeGreaterThan(before);
  expect(await advisoryLocks()).toBeGreaterThan(0);
  expect(await relay.stop()).toBe(0);
  await until('no lock is left', async () => (await advisoryLocks()) === 0);

  // One that is killed leaves nothing either: the pooler ends what its client leaves open.
  const killed = backlog.start({ DATABASE_URL: pooler.url });
  await until('it holds its locks', async () => (await advisoryLocks()) > 0);
  killed.kill('SIGKILL');
  expect(await killed.ended).toBe('SIGKILL');
  await until('no lock is left', async () => (await advisoryLocks()) === 0);
});
