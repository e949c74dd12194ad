import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { EVENTS_EXCHANGE } from '../../src/broker/index.js';
import { killAll, type Running } from '../support/processes.js';
import { startProxy, type Proxy } from '../support/proxy.js';
import { copies, openBench, type RelayBench } from '../support/relay.js';
import { freshStores, type Stores } from '../support/stores.js';
import { until } from '../support/until.js';

let stores: Stores;
let bench: RelayBench;
const proxies: Proxy[] = [];

beforeAll(async () => {
  stores = await freshStores();
  bench = await openBench(stores.env);
});
afterAll(async () => {
  await bench.close();
  await stores.drop();
});
beforeEach(async () => {
  await bench.pool.query('TRUNCATE outbox');
  bench.arrived.length = 0;
});
afterEach(async () => {
  await killAll();
  for (const proxy of proxies.splice(0)) await proxy.close();
});

async function proxyFor(
  name: 'DATABASE_URL' | 'RABBITMQ_URL',
): Promise<{ proxy: Proxy; env: NodeJS.ProcessEnv }> {
  const url = new URL(stores.env[name]);
  const proxy = await startProxy({ host: url.hostname, port: Number(url.port) });
  proxies.push(proxy);
  url.hostname = '127.0.0.1';
  url.port = String(proxy.port);
  return { proxy, env: { [name]: url.href } };
}

const attached = async (relay: Running): Promise<void> => {
  await relay.line('relay.slots');
  await relay.line('broker.connected');
};

/** The one backend that owns every slot. */
async function ownerPid(): Promise<number | undefined> {
  const [first, ...others] = await bench.owners();
  expect(others).toEqual([]);
  return first?.[1] === 32 ? first[0] : undefined;
}

test('R-01 a slow transaction with a low id is published after its commit, a gap is waited for by nobody', async () => {
  await attached(bench.start());
  const [slow, gap] = [await bench.pool.connect(), await bench.pool.connect()];
  const insert = `INSERT INTO outbox (type, body) VALUES ('order.placed', '') RETURNING event_id, id::int`;
  type Written = { event_id: string; id: number };
  try {
    await slow.query('BEGIN');
    const a = (await slow.query<Written>(insert)).rows[0]!;
    const b = (await bench.pool.query<Written>(insert)).rows[0]!;
    await gap.query('BEGIN');
    const c = (await gap.query<Written>(insert)).rows[0]!;
    await gap.query('ROLLBACK');
    expect(a.id).toBeLessThan(b.id);
    await until('b is published', () => bench.arrived.includes(b.event_id), { ms: 1_000 });
    const d = (await bench.pool.query<Written>(insert)).rows[0]!;
    await until('d, behind the gap, is published', () => bench.arrived.includes(d.event_id), { ms: 1_000 });
    expect(bench.arrived).not.toContain(a.event_id);
    await slow.query('COMMIT');
    await until('a is published', () => bench.arrived.includes(a.event_id), { ms: 1_000 });
    await bench.allPublished(3);
    expect(bench.arrived).toEqual([b.event_id, d.event_id, a.event_id]);
    expect(bench.arrived).not.toContain(c.event_id);
  } finally {
    slow.release();
    gap.release();
  }
});

test('a window smaller than the backlog takes the oldest rows first, across the step from 9 to 10 and to 1,000', async () => {
  await bench.pool.query('TRUNCATE outbox RESTART IDENTITY');
  const ids = await bench.write(1_005);
  bench.start({ RELAY_WINDOW: '7' });
  await bench.allPublished(1_005, 30_000);
  await until('all arrived', () => bench.arrived.length >= 1_005);
  expect(bench.arrived).toEqual(ids);
});

test('R-02 confirms that are held back and then lost with the connection mark nothing; all go again under their ids', async () => {
  const { proxy, env } = await proxyFor('RABBITMQ_URL');
  const relay = bench.start(env);
  await attached(relay);
  await until('a channel', async () => {
    await bench.write(1);
    return bench.arrived.length > 0;
  });
  await bench.pool.query('TRUNCATE outbox');
  bench.arrived.length = 0;

  proxy.freeze('to-client');
  const ids = await bench.write(200);
  await until('the broker has all 200', () => new Set(bench.arrived).size === 200);
  expect((await bench.rows()).filter(({ published }) => published)).toEqual([]);
  proxy.reset();
  await relay.line('broker.gone', 1_000);
  const rows = await bench.rows();
  expect(rows.filter(({ published, parked, attempts }) => published || parked || attempts > 0)).toEqual([]);
  proxy.heal();
  await bench.allPublished(200);
  await until('200 second copies', () => bench.arrived.length === 400);
  expect(new Set(bench.arrived)).toEqual(new Set(ids));
  expect((await bench.rows()).every(({ attempts }) => attempts === 0)).toBe(true);
});

test('R-03 while nothing passes to the broker nothing is called published', async () => {
  const { proxy, env } = await proxyFor('RABBITMQ_URL');
  const relay = bench.start(env);
  await attached(relay);
  proxy.freeze('both');
  const ids = await bench.write(50);
  const frozenUntil = Date.now() + 3_000;
  await until('three seconds of silence, looked at again and again', async () => {
    const published = (await bench.rows()).filter((row) => row.published).map((row) => row.event_id);
    expect(bench.arrived).toEqual(expect.arrayContaining(published));
    expect(published).toEqual([]);
    return Date.now() > frozenUntil;
  });
  proxy.heal();
  await bench.allPublished(50);
  await until('all arrived', () => new Set(bench.arrived).size === 50);
  expect(new Set(bench.arrived)).toEqual(new Set(ids));
  expect((await bench.rows()).every(({ attempts }) => attempts === 0)).toBe(true);
  expect(await relay.stop()).toBe(0);
});

test('R-04 what nobody is bound for waits with its reason while its neighbours flow, and goes once bound', async () => {
  const lost = await bench.write(10, 'order.lost');
  await bench.write(10);
  bench.start({ RELAY_BACKOFF_FIRST_MS: '500', RELAY_BACKOFF_CAP_MS: '500' });
  await bench.allPublished(10);
  // Marks and failures of one window are two statements: the second may be under way still.
  const waiting = await until('each has failed once', async () => {
    const rows = (await bench.rows()).filter(({ type }) => type === 'order.lost');
    return rows.every(({ attempts }) => attempts > 0) && rows;
  });
  expect(waiting).toHaveLength(10);
  for (const row of waiting) {
    expect(row).toMatchObject({ published: false, parked: false });
    expect(row.last_error).toContain('NO_ROUTE');
    expect(row.last_error).toContain('order.lost');
    expect(row.attempts).toBeGreaterThan(0);
  }
  await until('a row waits', async () => (await bench.rows()).some(({ waits }) => waits));
  const { queue } = await bench.channel.assertQueue('', { exclusive: true });
  await bench.channel.bindQueue(queue, EVENTS_EXCHANGE, 'order.lost');
  await bench.allPublished(20);
  expect((await bench.channel.checkQueue(queue)).messageCount).toBe(lost.length);
  expect((await bench.rows()).every(({ parked, last_error }) => !parked && last_error === null)).toBe(true);
  await bench.channel.deleteQueue(queue);
});

test('R-04 a type that is never bound ends parked', async () => {
  await bench.write(3, 'order.never');
  const relay = bench.start({
    RELAY_BACKOFF_FIRST_MS: '20',
    RELAY_BACKOFF_CAP_MS: '20',
    RELAY_MAX_ATTEMPTS: '3',
  });
  await until('all parked', async () => (await bench.rows()).every(({ parked }) => parked));
  expect((await bench.rows()).map(({ attempts }) => attempts)).toEqual([3, 3, 3]);
  const told = relay.lines.filter(({ event }) => event === 'relay.parked');
  expect(told).toHaveLength(3);
  expect(told[0]).toMatchObject({ messageId: expect.any(String) as string, type: 'order.never' });
});

test('R-05 rows that cannot be sent, or have a meaning for the broker, are parked; their neighbours flow', async () => {
  await bench.write(97);
  await bench.pool.query(
    `INSERT INTO outbox (type, body, headers) VALUES
       ('order.placed', decode(repeat('00', 17825792), 'hex'), '{}'),
       ('order.placed', '', jsonb_build_object('big', repeat('x', 70000))),
       ('order.placed', '', '{"CC": "x"}')`,
  );
  const relay = bench.start();
  await bench.allPublished(97);
  const parked = await until('three parked', async () => {
    const rows = (await bench.rows()).filter((row) => row.parked);
    return rows.length === 3 && rows;
  });
  expect(parked[0]?.last_error).toContain('17825792');
  expect(parked[1]?.last_error).toContain('headers');
  expect(parked[2]?.last_error).toContain('PRECONDITION_FAILED');
  expect(relay.lines.filter(({ event }) => event === 'broker.channel.closed')).toEqual([]);
  expect(bench.arrived).toHaveLength(97);
});

test('R-08 three relays and a kill -9 of one: every id arrives, at most one window twice', async () => {
  const relays = [bench.start(), bench.start(), bench.start()];
  for (const relay of relays) await attached(relay);
  await until('each owns slots', async () => (await bench.owners()).size === 3);
  const ids = new Set(await bench.write(10_000));
  await until('about half is out', () => bench.arrived.length >= 4_000, { ms: 30_000 });
  relays[0]!.kill('SIGKILL');
  expect(await relays[0]!.ended).toBe('SIGKILL');
  expect((await bench.rows()).some(({ published }) => !published)).toBe(true); // killed in the middle
  await bench.allPublished(10_000, 30_000);
  await until('all arrived', () => new Set(bench.arrived).size === 10_000);
  expect(new Set(bench.arrived)).toEqual(ids);
  expect(copies(bench.arrived)).toBeLessThanOrEqual(200);
});

test('R-09 a mark that fails is tried again alone: nothing is published twice', async () => {
  const { proxy, env } = await proxyFor('RABBITMQ_URL');
  const blocker = await bench.pool.connect();
  const relay = bench.start(env);
  await attached(relay);
  await bench.write(1);
  await bench.allPublished(1); // the channel is open
  const failedMarks = (): number => relay.lines.filter(({ event }) => event === 'relay.mark.failed').length;
  try {
    proxy.freeze('to-client'); // no confirm comes before the lock is held
    await bench.write(100);
    await until('the broker has them', () => bench.arrived.length === 101);
    await blocker.query('BEGIN');
    await blocker.query('LOCK TABLE outbox IN SHARE MODE');
    proxy.heal();
    await until('two marks failed', () => failedMarks() >= 2);
    expect((await bench.rows()).filter(({ published }) => published)).toHaveLength(1);
  } finally {
    await blocker.query('ROLLBACK');
    blocker.release();
  }
  await bench.allPublished(101, 2_000);
  expect(bench.arrived).toHaveLength(101);
  expect(copies(bench.arrived)).toBe(0);
  expect((await bench.rows()).every(({ attempts }) => attempts === 0)).toBe(true);
});

test('SIGTERM in the middle of a backlog: exit 0, and nothing is published twice', async () => {
  const ids = await bench.write(5_000);
  const relay = bench.start();
  await until('it publishes', () => bench.arrived.length > 500);
  expect(await relay.stop()).toBe(0);
  const published = (await bench.rows()).filter((row) => row.published).length;
  expect(published).toBeLessThan(5_000);
  bench.start();
  await bench.allPublished(5_000, 30_000);
  await until('all arrived', () => bench.arrived.length >= 5_000);
  expect(bench.arrived).toHaveLength(5_000);
  expect(new Set(bench.arrived)).toEqual(new Set(ids));
});

test('a Postgres connection that the server ends is made anew, in the same process', async () => {
  const relay = bench.start();
  await attached(relay);
  const before = await until('an owner', ownerPid);
  const { rows } = await bench.pool.query<{ ok: boolean }>('SELECT pg_terminate_backend($1) AS ok', [before]);
  expect(rows[0]?.ok).toBe(true);
  await relay.line('relay.postgres');
  await bench.write(10);
  await bench.allPublished(10);
  expect(await until('an owner again', ownerPid)).not.toBe(before);
  expect(relay.lines.filter(({ event }) => event === 'relay.slots').length).toBeGreaterThanOrEqual(2);
});

test('a Postgres connection that is frozen half-open is given up, and the relay carries on', async () => {
  const { proxy, env } = await proxyFor('DATABASE_URL');
  const relay = bench.start(env);
  await attached(relay);
  const before = proxy.accepted;
  proxy.freeze('both');
  await bench.write(10);
  await relay.line('relay.postgres', 25_000);
  proxy.heal();
  await bench.allPublished(10, 20_000);
  expect(proxy.accepted).toBeGreaterThan(before);
  expect(copies(bench.arrived)).toBe(0);
});
