import { readFile } from 'node:fs/promises';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { killAll } from '../support/processes.js';
import { startProxy } from '../support/proxy.js';
import { copies, openBench, type RelayBench } from '../support/relay.js';
import { freshStores, type Stores } from '../support/stores.js';
import { until } from '../support/until.js';

let stores: Stores;
let bench: RelayBench;
const ends: (() => Promise<unknown>)[] = [];

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
  for (const end of ends.splice(0)) await end();
});

const shares = async (): Promise<number[]> => [...(await bench.owners()).values()].sort((a, b) => a - b);
/** A change of the relays has changed the shares within 10 s. */
const settle = (expected: number[]): Promise<unknown> =>
  until(`shares ${expected.join()}`, async () => (await shares()).join() === expected.join(), { ms: 10_000 });

async function residentMiB(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) / 1024;
}

async function proxied(name: 'DATABASE_URL' | 'RABBITMQ_URL') {
  const url = new URL(stores.env[name]);
  const proxy = await startProxy({ host: url.hostname, port: Number(url.port) });
  ends.push(() => proxy.close());
  url.hostname = '127.0.0.1';
  url.port = String(proxy.port);
  return { proxy, env: { [name]: url.href } };
}

test('relays share the slots evenly within 10 s of one joining, leaving or being killed', async () => {
  const relays = [bench.start()];
  await settle([32]);
  relays.push(bench.start());
  await settle([16, 16]);
  relays.push(bench.start(), bench.start());
  await settle([8, 8, 8, 8]);
  expect(await relays[0]!.stop()).toBe(0);
  await settle([10, 11, 11]);
  relays[1]!.kill('SIGKILL');
  expect(await relays[1]!.ended).toBe('SIGKILL');
  await settle([16, 16]);
  await bench.write(100);
  await bench.allPublished(100);
  expect(copies(bench.arrived)).toBe(0);
});

test('an owner whose link to Postgres fell silent is replaced within 10 s, and shares again when it is back', async () => {
  const { proxy, env } = await proxied('DATABASE_URL');
  const cutOff = bench.start(env);
  await settle([32]);
  bench.start();
  await settle([16, 16]);
  const before = new Set((await bench.owners()).keys());
  proxy.strand();
  await bench.write(100);
  await settle([32]);
  await bench.allPublished(100, 10_000);
  expect(copies(bench.arrived)).toBe(0);
  await cutOff.line('relay.postgres'); // it noticed by itself, and came back on a new session
  await settle([16, 16]);
  expect([...(await bench.owners()).keys()].filter((pid) => before.has(pid))).toHaveLength(1);
});

test('an owner that is frozen whole is replaced within 10 s, and sends nothing twice when it thaws', async () => {
  const frozen = bench.start();
  await settle([32]);
  frozen.kill('SIGSTOP');
  bench.start();
  await settle([32]);
  await until('by another', async () => (await shares()).length === 1);
  await bench.write(100);
  await bench.allPublished(100, 10_000);
  frozen.kill('SIGCONT');
  await frozen.line('relay.postgres');
  await settle([16, 16]);
  expect(copies(bench.arrived)).toBe(0);
});

test('one that cannot reach the broker leaves its slots to one that can, and shares again when it can', async () => {
  const { proxy, env } = await proxied('RABBITMQ_URL');
  const away = bench.start(env);
  bench.start();
  await settle([16, 16]);
  proxy.cut();
  await away.line('broker.unreachable');
  await bench.write(100);
  await settle([32]);
  await bench.allPublished(100, 10_000);
  proxy.heal();
  await settle([16, 16]);
});

test('rows in flight are bounded in bytes: 40 rows of 8 MiB go, and the process stays below 400 MiB', async () => {
  await bench.pool.query(
    `INSERT INTO outbox (type, body) SELECT 'order.placed', decode(repeat('00', 8388608), 'hex') FROM generate_series(1, 40)`,
  );
  const relay = bench.start();
  let largest = 0;
  await until(
    'all published',
    async () => {
      largest = Math.max(largest, await residentMiB(relay.pid));
      return (await bench.rows()).every(({ published }) => published);
    },
    { ms: 60_000 },
  );
  expect(largest).toBeGreaterThan(20);
  expect(largest).toBeLessThan(400);
});

test('published rows older than the retention are purged by one of the relays, pending and parked ones never', async () => {
  const old = `now() - interval '8 days'`;
  await bench.pool.query(
    `INSERT INTO outbox (type, body, created_at, published_at, parked_at)
     SELECT 'order.placed', ''::bytea, ${old}, ${old}, NULL::timestamptz FROM generate_series(1, 2500) UNION ALL
     SELECT 'order.placed', '', ${old}, now() - interval '6 days', NULL UNION ALL
     SELECT 'order.placed', '', ${old}, NULL, ${old} UNION ALL
     SELECT 'order.lost', '', ${old}, NULL, NULL`,
  );
  const relays = [bench.start({ OUTBOX_RETENTION_DAYS: '7' }), bench.start({ OUTBOX_RETENTION_DAYS: '7' })];
  await until('the old ones are gone', async () => (await bench.rows()).length === 3);
  expect((await bench.rows()).map(({ published, parked }) => [published, parked])).toEqual([
    [true, false],
    [false, true],
    [false, false],
  ]);
  const told = (): unknown[] =>
    relays.flatMap(({ lines }) => lines.filter(({ event }) => event === 'relay.purged'));
  await until('it was told', () => told().length > 0);
  expect(told()).toMatchObject([{ rows: 2_500 }]);
});
