import pg from 'pg';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { openSession, readBacklog } from '../../src/outbox/index.js';
import { killAll, startType } from '../support/processes.js';
import { startProxy, type Proxy } from '../support/proxy.js';
import { freshStores, type Stores } from '../support/stores.js';
import { until } from '../support/until.js';
import { PASSWORD, startConsole, USER } from './console.js';
import { migrate, seedWaiting } from './seed.js';

let stores: Stores;
let pool: pg.Pool;

beforeAll(async () => {
  stores = await freshStores();
  await migrate(stores.env);
  await seedWaiting(stores.env, ['one', 'two', 'three']);
  pool = new pg.Pool({ connectionString: stores.env.DATABASE_URL });
});
afterEach(killAll);
afterAll(async () => {
  await pool.end();
  await stores.drop();
});

/** The cells of a row, as text. */
function row(page: string, name: string): string[] {
  const found = [...page.matchAll(/<tr>([\s\S]*?)<\/tr>/g)]
    .map(([, cells = '']) =>
      [...cells.matchAll(/<t[hd][^>]*>([\s\S]*?)<\/t[hd]>/g)].map(([, cell = '']) =>
        cell.replace(/<[^>]*>/g, '').trim(),
      ),
    )
    .find(([first]) => first === name);
  if (found === undefined) throw new Error(`no row ${name} in ${page}`);
  return found.slice(1);
}

test('shows how much stands at each hop, and how old the oldest of it is', async () => {
  await pool.query(`SELECT outbox_write('github.issues.opened', '{}'::jsonb) FROM generate_series(1, 1500)`);
  await pool.query(
    `UPDATE outbox SET created_at = now() - interval '3 hours' WHERE id = (SELECT min(id) FROM outbox)`,
  );
  await pool.query(
    `UPDATE outbox SET parked_at = now() WHERE id IN (SELECT id FROM outbox ORDER BY id DESC LIMIT 7)`,
  );
  const board = await startConsole(stores.env);
  const cookie = await board.login();
  const page = (await board.send('GET', '/', { cookie })).text;
  expect(row(page, 'outbox')).toEqual(['1,493', '3 h', '0', '7']);
  expect(row(page, 'stats')).toEqual(['3', expect.stringMatching(/^\d+ s$/), '0', '0', '3', '0', '0', '0']);
  expect(row(page, 'notify')).toEqual(['0', '–', '0', '0', '0', '0', '0', '0']);
  expect(page).toContain('<li>parked in the outbox: 7</li>');
  expect(page).toMatch(/<meta http-equiv="refresh" content="\d+"/);
  expect(page).not.toMatch(/<script|cannot be reached/);

  await pool.query('TRUNCATE outbox');
  const empty = await until('the next reading', async () => {
    const next = (await board.send('GET', '/', { cookie })).text;
    return row(next, 'outbox')[0] === '0' ? next : undefined;
  });
  expect(row(empty, 'outbox')).toEqual(['0', '–', '0', '0']);
  expect(empty).toContain('All stores answer. Nothing is dead, parked or paused.');
  expect(await board.process.stop()).toBe(0);
});

test('counts by the partial indexes, whatever has been published', async () => {
  // A session as the page has it.
  const { client, close } = await openSession(stores.env.DATABASE_URL, 'test');
  try {
    await client.query('BEGIN');
    await client.query(
      `INSERT INTO outbox (type, body, published_at) SELECT 't', '{}', now() FROM generate_series(1, 20000)`,
    );
    await client.query(`SELECT outbox_write('t', '{}'::jsonb) FROM generate_series(1, 3)`);
    await client.query('ANALYZE outbox');
    const wholeReads = async (): Promise<number> => {
      const { rows } = await client.query<{ count: number }>(
        `SELECT seq_scan::int AS count FROM pg_stat_xact_user_tables WHERE relname = 'outbox'`,
      );
      return rows[0]!.count;
    };
    const before = await wholeReads();
    expect(await readBacklog(client)).toMatchObject({ due: 3, parked: 0 });
    expect(await wholeReads()).toBe(before);
    // What is counted is counted: the same question without the words of an index reads the whole table.
    await client.query('SELECT count(*) FROM outbox WHERE attempts = 0');
    expect(await wholeReads()).toBe(before + 1);
  } finally {
    await client.query('ROLLBACK');
    await close();
  }
});

const STORES = [
  ['Postgres', 'DATABASE_URL', 'outbox'],
  ['MongoDB', 'MONGODB_URI', 'stats'],
  ['Redis', 'REDIS_URL', 'stats'],
] as const;

test.each(STORES.flatMap((store) => [[...store, 'cut'] as const, [...store, 'freeze'] as const]))(
  '%s away (%s, row %s, %s): the page answers, names it, shows the others, and recovers',
  async (store, setting, rowName, fault) => {
    const address = new URL(stores.env[setting]);
    const proxy: Proxy = await startProxy({ host: address.hostname, port: Number(address.port) });
    address.port = String(proxy.port);
    const board = await startConsole({ ...stores.env, [setting]: address.href });
    const cookie = await board.login();
    const look = async (): Promise<string> => {
      const began = performance.now();
      const { status, text } = await board.send('GET', '/', { cookie });
      expect(status).toBe(200);
      expect(performance.now() - began).toBeLessThan(5_000);
      return text;
    };
    const whole = await until(`${store} is shown`, async () => {
      const page = await look();
      return page.includes('cannot be reached') ? undefined : page;
    });
    expect(row(whole, rowName)[0]).not.toContain(store);
    expect(proxy.accepted).toBeGreaterThan(0);

    proxy[fault]();
    const away = await until(`${store} is missed`, async () => {
      const page = await look();
      return page.includes(`${store} cannot be reached`) ? page : undefined;
    });
    expect(row(away, rowName)).toContain(`${store} cannot be reached`);
    for (const [other] of STORES)
      if (other !== store) expect(away).not.toContain(`${other} cannot be reached`);
    for (const secret of [address.password, PASSWORD]) expect(away).not.toContain(secret);
    expect((await board.send('GET', '/readyz')).status, 'ready: it has to show the outage').toBe(200);
    expect((await board.send('GET', '/board', { cookie })).status).toBe(200);
    const began = performance.now();
    const listed = await board.send('GET', '/board/api/queues', { cookie });
    expect([listed.status, performance.now() - began < 5_000]).toEqual([store === 'Redis' ? 500 : 200, true]);
    if (store === 'Redis' && fault === 'cut') expect(listed.text).toContain('Redis cannot be reached');
    for (const secret of [address.password, PASSWORD]) expect(listed.text).not.toContain(secret);

    proxy.heal();
    await until(`${store} is back`, async () => !(await look()).includes('cannot be reached'), {
      ms: 30_000,
    });
    expect(await board.process.stop()).toBe(0);
    await proxy.close();
  },
);

test.each(STORES)('stops in good time while %s (%s) is frozen', async (store, setting) => {
  const address = new URL(stores.env[setting]);
  const proxy = await startProxy({ host: address.hostname, port: Number(address.port) });
  address.port = String(proxy.port);
  const board = await startConsole({ ...stores.env, [setting]: address.href });
  const cookie = await board.login();
  const look = async (): Promise<string> => (await board.send('GET', '/', { cookie })).text;
  await until('all is shown', async () => !(await look()).includes('cannot be reached'));
  proxy.freeze();
  await until(`${store} is missed`, async () => (await look()).includes(`${store} cannot be reached`));
  const began = performance.now();
  expect(await board.process.stop()).toBe(0);
  expect(performance.now() - began).toBeLessThan(10_000);
  await proxy.close();
});

test('starts and stops while every store is away, and says that the outbox is not migrated', async () => {
  const nowhere = '127.0.0.1:1';
  const lost = await startConsole({
    ...stores.env,
    DATABASE_URL: `postgres://user:withheld-1@${nowhere}/app`,
    MONGODB_URI: `mongodb://user:withheld-2@${nowhere}/app`,
    REDIS_URL: `redis://:withheld-3@${nowhere}/0`,
  });
  const { text } = await lost.send('GET', '/', { cookie: await lost.login() });
  for (const [store] of STORES) expect(text).toContain(`${store} cannot be reached`);
  expect(text).not.toContain('withheld');
  expect(await lost.process.stop()).toBe(0);

  const other = await freshStores();
  const bare = await startConsole(other.env);
  const page = await bare.send('GET', '/', { cookie: await bare.login() });
  expect(page.text).toContain('run `twinbox migrate` first');
  expect(await bare.process.stop()).toBe(0);
  await other.drop();
});

test('a port that is taken is named, with what to set', async () => {
  const board = await startConsole(stores.env);
  const PORT = new URL(board.url).port;
  const second = startType('web', [], { ...stores.env, PORT, WEB_USER: USER, WEB_PASSWORD: PASSWORD });
  expect(await second.ended).toBe(1);
  expect((await second.line('process.failed')).msg).toMatch(
    new RegExp(`cannot listen on 127.0.0.1:${PORT} \\(EADDRINUSE\\): set PORT`),
  );
});
