import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { killAll, type Running } from '../support/processes.js';
import { startProxy, type Proxy } from '../support/proxy.js';
import { openBench, type RelayBench } from '../support/relay.js';
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

const attached = async (relay: Running): Promise<void> => {
  await relay.line('relay.slots');
  await relay.line('broker.connected');
};

test('a row over which the broker closes the whole connection is found and parked alone; its neighbours flow', async () => {
  await attached(bench.start({ RABBITMQ_URL: `${stores.env.RABBITMQ_URL}?frameMax=8192` }));
  await bench.pool.query(
    `INSERT INTO outbox (type, body, headers)
     SELECT 'order.placed', '', CASE WHEN n = 6 THEN jsonb_build_object('h', repeat('x', 20000)) ELSE '{}' END
       FROM generate_series(1, 11) AS n`,
  );
  await bench.allPublished(10, 30_000);
  const parked = (await bench.rows()).filter((row) => row.parked);
  expect(parked).toHaveLength(1);
  expect(parked[0]!.last_error).toMatch(/501|FRAME/);
});

test('SIGTERM while confirms are held back: it ends in time with 0, and nothing is marked', async () => {
  const url = new URL(stores.env.RABBITMQ_URL);
  const proxy = await startProxy({ host: '127.0.0.1', port: Number(url.port) });
  proxies.push(proxy);
  url.port = String(proxy.port);
  const relay = bench.start({ RABBITMQ_URL: url.href, SHUTDOWN_TIMEOUT_MS: '8000' });
  await attached(relay);
  await until('a channel', async () => {
    await bench.write(1);
    return bench.arrived.length > 0;
  });
  await until('nothing is in flight', async () => (await bench.rows()).every(({ published }) => published));
  proxy.freeze('to-client');
  const ids = await bench.write(50);
  await until('the broker has all 50', () => ids.every((id) => bench.arrived.includes(id)));
  expect(await relay.stop()).toBe(0); // 1 would say that it took longer than SHUTDOWN_TIMEOUT_MS
  const rows = await bench.rows();
  expect(rows.filter(({ event_id, published }) => published && ids.includes(event_id))).toEqual([]);
});
