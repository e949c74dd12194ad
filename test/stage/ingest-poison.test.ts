import { readFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { EVENTS_EXCHANGE } from '../../src/broker/index.js';
import { openStack } from '../../stack/index.js';
import { openBench, type Bench } from '../support/actors/bench.js';
import { GOOD_BODY } from '../support/actors/envelopes.js';
import { killAll } from '../support/processes.js';
import { nested, publishRaw, tableEntry } from '../support/raw-amqp.js';
import { management } from '../support/stores.js';
import { until } from '../support/until.js';

let bench: Bench;
const stack = openStack({ name: 'test' });

beforeAll(async () => {
  bench = await openBench();
});
afterEach(async () => {
  await stack.resume('mongodb').catch(() => undefined);
  await killAll();
  await bench.purge();
});
afterAll(() => bench.close());

const ids = (prefix: string, count: number) =>
  Array.from({ length: count }, (_, index) => `${prefix}-${index}`);
const vhost = () => new URL(bench.env.RABBITMQ_URL).pathname.slice(1);
/** As the management API counts them, a few seconds late: letters are not taken out to be counted. */
const lettersCounted = async () =>
  (
    (await management('GET', `queues/${vhost()}/twinbox.receipt.dlq`)) as {
      messages?: number;
    }
  ).messages ?? 0;
const processed = (all: readonly string[]) =>
  bench.documents.countDocuments({ messageId: { $in: [...all] }, processedAt: { $type: 'date' } });

test('I-06 headers nested 9,000 deep end alone in the dead-letter queue; 50 good messages are processed', async () => {
  const good = ids('i06', 50);
  for (const id of good.slice(0, 20)) await bench.publish(id);
  await publishRaw(bench.env.RABBITMQ_URL, {
    exchange: EVENTS_EXCHANGE,
    routingKey: 'order.placed',
    messageId: 'i06-deep',
    type: 'order.placed',
    table: tableEntry('deep', nested(9_000)),
    body: Buffer.from(JSON.stringify(GOOD_BODY)),
  });
  for (const id of good.slice(20)) await bench.publish(id);
  const ingest = bench.start('ingest');
  const receipt = bench.start('receipt');
  await ingest.line('process.started');
  await receipt.line('process.started');
  await until('all good ones are processed', async () => (await processed(good)) === 50, { ms: 150_000 });
  await until('the deep one is a dead letter', async () => (await lettersCounted()) === 1, { ms: 120_000 });
  // The fault took place: it was delivered again and again, and cost a connection each time.
  const connects = ingest.lines.filter(({ event }) => event === 'broker.connected');
  expect(connects.length).toBeGreaterThan(45);
  const times = connects.map(({ time }) => new Date(String(time)).getTime());
  const spanSeconds = (times.at(-1)! - times[0]!) / 1_000;
  // Two connections at the start; then one a second at the most.
  expect(connects.length - 2).toBeLessThanOrEqual(spanSeconds + 1);
  for (const id of good) expect(await bench.runs(id)).toHaveLength(1);
  expect(await lettersCounted()).toBe(1);
  expect(await ingest.stop()).toBe(0);
}, 300_000);

test('I-10 a consumer that dies 55 times over the first of 50 messages costs the other 49 nothing', async () => {
  const all = ids('i10', 50);
  for (const id of all) await bench.publish(id);
  const { arguments: given } = (await management('GET', `queues/${vhost()}/twinbox.receipt`)) as {
    arguments: Record<string, unknown>;
  };
  expect(given['x-delivery-limit']).toBe(50);
  expect(given['x-dead-letter-exchange']).toBe('twinbox.dlx');
  for (let death = 0; death < 55; death += 1)
    expect(await bench.startProbed('ingest', 'ingest.stored').ended).toBe('SIGKILL');
  const receipt = bench.start('receipt');
  const sweeper = bench.start('sweeper');
  const ingest = bench.start('ingest');
  for (const one of [receipt, sweeper, ingest]) await one.line('process.started');
  await until('all are processed', async () => (await processed(all)) === 50, { ms: 30_000 });
  for (const id of all) expect(await bench.runs(id)).toHaveLength(1);
  await until('the mailbox is empty', async () => (await bench.mailbox()).ready === 0);
  const letters = await bench.letters();
  expect(letters.length).toBeLessThanOrEqual(1);
  for (const { messageId } of letters) expect(messageId).toBe('i10-0');
}, 420_000);

test('I-15 20,000 messages wait while MongoDB stands still: no more than the prefetch is held, the memory stays', async () => {
  const ingest = bench.start('ingest');
  await ingest.line('process.started');
  for (const id of ids('before', 20)) await bench.publish(id);
  await until('the first are recorded', async () => (await bench.document('before-19')) !== null);
  const consumers = await until(
    'its consumer is listed with the whole prefetch',
    async () => {
      const listed = (await management('GET', `consumers/${vhost()}`)) as {
        queue: { name: string };
        prefetch_count: number;
        arguments: object;
      }[];
      const ours = listed.filter(({ queue }) => queue.name === 'twinbox.receipt');
      return ours.length === 1 && ours[0]!.prefetch_count === 300 && ours;
    },
    { ms: 30_000, everyMs: 200 },
  );
  expect(JSON.stringify(consumers[0]!.arguments)).not.toContain('timeout');
  const rss = () =>
    Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${ingest.pid}/status`, 'utf8'))![1]) / 1_024;
  await stack.pause('mongodb');
  expect((await stack.status()).find(({ service }) => service === 'mongodb')?.state).toBe('paused');
  const before = rss();
  await bench.publishMany(ids('i15', 20_000));
  const end = performance.now() + 20_000;
  let [leastReady, mostMb] = [Infinity, 0];
  await until(
    '20 s are over',
    async () => {
      leastReady = Math.min(leastReady, (await bench.mailbox()).ready);
      mostMb = Math.max(mostMb, rss());
      return performance.now() > end;
    },
    { ms: 30_000, everyMs: 200 },
  );
  expect(leastReady).toBeGreaterThanOrEqual(20_000 - 300);
  expect(mostMb - before).toBeLessThan(100);
  await stack.resume('mongodb');
  await until(
    'all are recorded',
    async () => (await bench.documents.countDocuments({ messageId: { $regex: '^i15-' } })) === 20_000,
    { ms: 60_000, everyMs: 500 },
  );
  expect(await bench.letters()).toEqual([]);
  expect(await ingest.stop()).toBe(0);
}, 180_000);

test.each([0, 1, 2, 3, 4])(
  'a message that cannot be stored in place %i of a batch ends alone: the others are recorded',
  async (place) => {
    const all = ids(`place${place}`, 5);
    // What proves the head of the mailbox harmless goes first, so that the five come together.
    await bench.publish(`place${place}-head`);
    for (const [index, id] of all.entries())
      await bench.publish(id, GOOD_BODY, index === place ? { contentEncoding: 'gzip' } : {});
    const ingest = bench.start('ingest');
    await ingest.line('process.started');
    const good = all.filter((_, index) => index !== place);
    await until(
      'the others are recorded',
      async () => (await bench.documents.countDocuments({ messageId: { $in: all } })) === 4,
    );
    await until('it is a dead letter', async () => (await bench.mailbox()).ready === 0);
    const letters = await until('the letter', async () => {
      const found = await bench.letters();
      return found.length > 0 && found;
    });
    expect(letters.map(({ messageId, headers }) => [messageId, headers['x-reason']])).toEqual([
      [all[place], 'undecodable'],
    ]);
    for (const id of good) expect(await bench.document(id)).not.toBeNull();
    expect(await ingest.stop()).toBe(0);
  },
);
