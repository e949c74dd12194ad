import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { killAll } from '../support/processes.js';
import { copies, openBench, type RelayBench } from '../support/relay.js';
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
  await bench.pool.query('TRUNCATE outbox');
  bench.arrived.length = 0;
});
afterEach(killAll);

const ROWS = 1_000;
const WINDOW = 200;

test.each([
  ['relay.claimed', 'nothing was sent'],
  ['relay.confirmed', 'the window is sent again'],
  ['relay.marked', 'what was marked is not sent again'],
])('a kill -9 at %s: every row is published by the next, %s', async (point) => {
  const ids = new Set(await bench.write(ROWS));
  const probed = bench.startProbed(point, { RELAY_WINDOW: String(WINDOW) });
  expect(await probed.ended).toBe('SIGKILL');

  const published = (await bench.rows()).filter((row) => row.published).length;
  if (point === 'relay.claimed') expect(bench.arrived).toEqual([]);
  if (point === 'relay.confirmed') await until('the broker has some', () => bench.arrived.length > 0);
  if (point === 'relay.marked') expect(published).toBeGreaterThan(0);
  else expect(published).toBe(0);
  expect(published).toBeLessThan(ROWS);

  bench.start();
  await bench.allPublished(ROWS, 15_000);
  await until('all arrived', () => new Set(bench.arrived).size === ROWS);
  expect(new Set(bench.arrived)).toEqual(ids);
  expect(copies(bench.arrived)).toBeLessThanOrEqual(WINDOW);
  if (point === 'relay.claimed') expect(copies(bench.arrived)).toBe(0);
  expect((await bench.rows()).every(({ attempts, parked }) => attempts === 0 && !parked)).toBe(true);
});
