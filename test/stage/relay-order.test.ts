import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { EVENTS_EXCHANGE } from '../../src/broker/index.js';
import { inTransaction, writeEvent } from '../../src/outbox/index.js';
import { killAll, type Running } from '../support/processes.js';
import { openBench, type RelayBench } from '../support/relay.js';
import { freshStores, type Stores } from '../support/stores.js';
import { until } from '../support/until.js';

let stores: Stores;
let bench: RelayBench;

beforeAll(async () => {
  stores = await freshStores();
  bench = await openBench(stores.env);
});
afterAll(async () => {
  await bench.close();
  await stores.drop();
});
beforeEach(async () => {
  await bench.pool.query('TRUNCATE outbox RESTART IDENTITY');
  bench.arrived.length = 0;
});
afterEach(killAll);

const sql = (text: string, values: unknown[] = []): Promise<unknown> => bench.pool.query(text, values);

/** What arrived, without second copies, as the keys and numbers that the ids were written with. */
async function arrivedByKey(): Promise<Map<string, number[]>> {
  const { rows } = await bench.pool.query<{ event_id: string; key: string; id: number }>(
    'SELECT event_id, key, id::int FROM outbox WHERE key IS NOT NULL',
  );
  const known = new Map(rows.map((row) => [row.event_id, row]));
  const byKey = new Map<string, number[]>();
  for (const eventId of new Set(bench.arrived)) {
    const row = known.get(eventId);
    if (row === undefined) continue;
    byKey.set(row.key, [...(byKey.get(row.key) ?? []), row.id]);
  }
  return byKey;
}

test('200 keys keep their order while four relays are killed at random', { timeout: 180_000 }, async () => {
  const [keys, rounds] = [200, 80];
  await sql(
    `INSERT INTO outbox (type, body, key) SELECT 'order.placed', '', 'k' || n % $1::int
       FROM generate_series(0, $1::int * $2::int - 1) AS n`,
    [keys, rounds],
  );
  const relays: Running[] = Array.from({ length: 4 }, () => bench.start());
  const published = async (): Promise<number> => (await bench.rows()).filter((row) => row.published).length;
  let kills = 0;
  while ((await published()) < keys * rounds) {
    const seen = await published();
    await until('it goes on', async () => (await published()) >= Math.min(keys * rounds, seen + 700), {
      ms: 30_000,
    });
    if ((await published()) === keys * rounds) break;
    const place = Math.floor(Math.random() * 4);
    relays[place]!.kill('SIGKILL');
    expect(await relays[place]!.ended, relays[place]!.text.join()).toBe('SIGKILL');
    kills += 1;
    relays[place] = bench.start();
  }
  expect(kills).toBeGreaterThanOrEqual(4);
  await until('all arrived', () => new Set(bench.arrived).size === keys * rounds);
  const byKey = await arrivedByKey();
  expect(byKey.size).toBe(keys);
  for (const ids of byKey.values()) {
    expect(ids).toHaveLength(rounds);
    expect(ids).toEqual([...ids].sort((a, b) => a - b));
  }
  expect(bench.arrived.length - keys * rounds).toBeLessThanOrEqual(kills * 200);
});

test('rows behind a returned one of their key wait, other keys overtake, and the order is kept once it is bound', async () => {
  await sql(`INSERT INTO outbox (type, body, key) VALUES
             ('order.unbound', '', 'a'), ('order.placed', '', 'a'), ('order.placed', '', 'a'), ('order.placed', '', 'b')`);
  bench.start({ RELAY_BACKOFF_FIRST_MS: '300', RELAY_BACKOFF_CAP_MS: '300' });
  await bench.allPublished(1);
  await until('the head was returned twice', async () => (await bench.rows())[0]!.attempts >= 2);
  const rows = await bench.rows();
  expect(rows.map(({ published }) => published)).toEqual([false, false, false, true]);
  expect(rows.map(({ attempts }) => attempts > 0)).toEqual([true, false, false, false]);
  const { queue } = await bench.channel.assertQueue('', { exclusive: true });
  await bench.channel.bindQueue(queue, EVENTS_EXCHANGE, 'order.unbound');
  await bench.allPublished(4);
  const { rows: marks } = await bench.pool.query<{ id: number }>(
    `SELECT id::int FROM outbox WHERE key = 'a' ORDER BY published_at`,
  );
  expect(marks.map(({ id }) => id)).toEqual([1, 2, 3]);
  await bench.channel.deleteQueue(queue);
});

test.each([
  ['skip', [false, true, true]],
  ['block', [false, false, true]],
])('RELAY_ON_PARKED=%s: the rows behind a parked one of their key', async (onParked, published) => {
  await sql(`INSERT INTO outbox (type, body, key) VALUES
             ('order.never', '', 'a'), ('order.placed', '', 'a'), ('order.placed', '', 'b')`);
  const relay = bench.start({ RELAY_MAX_ATTEMPTS: '1', RELAY_ON_PARKED: onParked });
  await relay.line('relay.parked');
  await bench.allPublished(published.filter(Boolean).length);
  await sql(`INSERT INTO outbox (type, body, key) VALUES ('order.placed', '', 'c')`);
  await bench.allPublished(published.filter(Boolean).length + 1); // it looked again, and found no more
  expect((await bench.rows()).map((row) => row.published)).toEqual([...published, true]);
});

const BLOCKED = 50_000;
test.each([
  [
    'of one key whose head waits',
    `SELECT 'order.placed', '', 'a', CASE WHEN n = 1 THEN now() + interval '1 hour' END`,
  ],
  ['each of a key of its own that waits', `SELECT 'order.placed', '', 'k' || n, now() + interval '1 hour'`],
  [
    'of 25,000 keys whose heads wait',
    `SELECT 'order.placed', '', 'k' || n % 25000, CASE WHEN n <= 25000 THEN now() + interval '1 hour' END`,
  ],
  ['without a key that come back at once, bound nowhere', `SELECT 'order.lost', '', NULL, now()`],
])('50,000 blocked rows, %s, do not starve 1,000 free ones behind them', async (_, select) => {
  await sql(
    `INSERT INTO outbox (type, body, key, next_attempt_at) ${select} FROM generate_series(1, ${BLOCKED}) AS n`,
  );
  const free = new Set(await bench.write(500));
  await sql(
    `INSERT INTO outbox (type, body, key) SELECT 'order.placed', '', 'free' || n FROM generate_series(1, 500) n`,
  );
  const { rows } = await bench.pool.query<{ event_id: string }>(
    `SELECT event_id FROM outbox WHERE key LIKE 'free%'`,
  );
  for (const { event_id } of rows) free.add(event_id);
  bench.start();
  await until('the free ones arrived', () => bench.arrived.length >= 1_000, { ms: 15_000 });
  expect(new Set(bench.arrived)).toEqual(free);
  expect(free.size).toBe(1_000);
});

test('late commits are never skipped: 8 writers that hold their transactions open for up to 2 s', async () => {
  bench.start();
  const began = Date.now();
  const written: string[] = [];
  const writer = async (n: number): Promise<void> => {
    while (Date.now() - began < 6_000) {
      await inTransaction(bench.pool, async (tx) => {
        const { eventId } = await writeEvent(tx, { type: 'order.placed', body: { n } });
        await tx.query('SELECT pg_sleep($1)', [
          Math.random() < 0.2 ? 2 * Math.random() : 0.02 * Math.random(),
        ]);
        written.push(eventId);
      });
    }
  };
  await Promise.all(Array.from({ length: 8 }, (_, n) => writer(n)));
  await bench.allPublished(written.length);
  await until('all arrived', () => bench.arrived.length >= written.length);
  expect(new Set(bench.arrived)).toEqual(new Set(written));
  expect(bench.arrived).toHaveLength(written.length);
  // The fault took place: rows became visible below ids that had gone out before them.
  const { rows } = await bench.pool.query<{ late: number }>(
    `SELECT count(*)::int AS late FROM (
       SELECT id, max(id) OVER (ORDER BY published_at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM outbox) o
      WHERE id < before`,
  );
  expect(rows[0]!.late).toBeGreaterThan(0);
});

test('a delayed event goes when it is due, and not before', async () => {
  await sql(
    `INSERT INTO outbox (type, body, publish_after) VALUES ('order.placed', '', now() + interval '1500 ms')`,
  );
  await bench.write(1);
  bench.start();
  await bench.allPublished(1);
  expect((await bench.rows()).map(({ published }) => published)).toEqual([false, true]);
  await bench.allPublished(2);
  const { rows } = await bench.pool.query<{ ok: boolean }>(
    'SELECT published_at >= publish_after AS ok FROM outbox WHERE publish_after IS NOT NULL',
  );
  expect(rows[0]?.ok).toBe(true);
});
