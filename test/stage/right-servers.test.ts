import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { migrateInbox } from '../../src/inbox/index.js';
import { openStack } from '../../stack/index.js';
import { ACTORS, freePort, openBench, type Bench } from '../support/actors/bench.js';
import { killAll } from '../support/processes.js';
import { until } from '../support/until.js';

/** Redis and MongoDB of these tests' own, to be frozen, emptied and bent; the shared ones are nobody's to break. */
const stack = openStack({ root: join(import.meta.dirname, '..', '..', '.stack'), name: 'ingest-test' });
let bench: Bench;

beforeAll(async () => {
  for (const name of ['REDIS_URL', 'MONGODB_URI']) Reflect.deleteProperty(process.env, name);
  await stack.remove();
  await stack.startService('redis');
  await stack.startService('mongodb');
  const { REDIS_URL, MONGODB_URI } = stack.urls();
  Object.assign(process.env, { REDIS_URL, MONGODB_URI });
});
afterAll(() => stack.remove());
beforeEach(async () => {
  bench = await openBench();
});
afterEach(async () => {
  await killAll();
  await bench.close();
});

const ids = (prefix: string, count: number) =>
  Array.from({ length: count }, (_, index) => `${prefix}-${index}`);
const documentOf = async (messageId: string) => (await bench.document(messageId))!;

test('the retention removes what is processed, and never what is unfinished or dead', async () => {
  for (const id of ['done', 'open', 'dead']) await bench.accept(id, undefined, 1);
  await bench.plan('dead', 'throw');
  await bench.plan('open', 'heed');
  const receipt = bench.start('receipt', { RECEIPT_ATTEMPTS: '1' });
  await bench.processed('done');
  await until('one is dead', async () => (await documentOf('dead')).deadAt instanceof Date);
  await until('one runs', async () => (await bench.runs('open')).length === 1);
  await migrateInbox(bench.inbox, ACTORS, 1);
  await bench.inbox.client.db('admin').command({ setParameter: 1, ttlMonitorSleepSecs: 1 });
  await until('the processed one is removed', async () => (await bench.document('done')) === null, {
    ms: 70_000,
  });
  // A second pass of the server, seen by a document that was made after the first.
  await bench.accept('done-2', undefined, 1);
  await until(
    'another pass',
    async () => (await bench.runs('done-2')).length === 1 && (await bench.document('done-2')) === null,
    { ms: 70_000 },
  );
  expect(await documentOf('open')).not.toHaveProperty('processedAt');
  expect(await documentOf('dead')).toMatchObject({ deadReason: 'failed' });
  await bench.release('open');
  expect(await receipt.stop()).toBe(0);
});

test('S-03 Redis is emptied under way: what waits, backs off and runs ends right, and counts outlive Redis', async () => {
  const [waiting, backingOff, running] = [ids('waits', 30), ids('backs-off', 5), ids('runs', 5)];
  for (const id of backingOff) await bench.plan(id, 'throw');
  for (const id of running) await bench.plan(id, 'heed');
  const receipt = bench.start('receipt', { RECEIPT_CONCURRENCY: '5', RECEIPT_BACKOFF_MS: '12000' });
  const sweeper = bench.start('sweeper');
  await Promise.all([receipt.line('process.started'), sweeper.line('process.started')]);
  for (const id of backingOff) await bench.accept(id);
  for (const id of backingOff)
    await until('it failed once', async () => (await documentOf(id)).failures === 1);
  for (const id of running) await bench.accept(id);
  for (const id of running) await until('it runs', async () => (await bench.runs(id)).length === 1);
  for (const id of waiting) await bench.accept(id);
  const due = await Promise.all(backingOff.map(async (id) => (await documentOf(id)).nextAttemptAt!));

  const client = await bench.queues.boardQueues()[0]!.getBackend().client;
  await (client as unknown as { flushall(): Promise<unknown> }).flushall();
  expect(await bench.queues.sight('receipt', waiting[0]!, 1)).toBe('absent');
  await sweeper.line('sweep.redis.empty');
  for (const id of running) await bench.release(id);

  for (const id of [...waiting, ...running]) await bench.processed(id, 30_000);
  for (const id of [...waiting, ...running]) {
    expect(await bench.runs(id)).toHaveLength(1);
    expect(await documentOf(id)).toMatchObject({ starts: 1, failures: 0 });
  }
  for (const [index, id] of backingOff.entries()) {
    const dead = await until(
      `${id} is dead`,
      async () => {
        const found = await documentOf(id);
        return found.deadAt instanceof Date && found;
      },
      { ms: 30_000 },
    );
    expect(dead).toMatchObject({ deadReason: 'failed', failures: 2, starts: 2 });
    expect(dead.runs[1]!.start.getTime()).toBeGreaterThanOrEqual(due[index]!.getTime());
  }
  expect(await receipt.stop()).toBe(0);
}, 90_000);

test('MongoDB frozen for longer than its clients wait: ingest pauses, dead-letters nothing, and records all once', async () => {
  const port = await freePort();
  const ingest = bench.start('ingest', { PORT: String(port) });
  await ingest.line('process.started');
  const all = ids('frozen', 100);
  for (const id of all.slice(0, 20)) await bench.publish(id);
  await until('the first are recorded', async () => (await bench.documents.countDocuments({})) === 20);
  await stack.pause('mongodb');
  expect((await stack.status()).find(({ service }) => service === 'mongodb')?.state).toBe('paused');
  for (const id of all.slice(20)) await bench.publish(id);
  await ingest.line('ingest.paused', 60_000);
  await until('all wait in the mailbox', async () => (await bench.mailbox()).ready === 80, { ms: 60_000 });
  expect((await bench.mailbox()).consumers).toBe(0);
  expect((await fetch(`http://127.0.0.1:${port}/readyz`)).status).toBe(503);
  await stack.resume('mongodb');
  await until('all are recorded', async () => (await bench.documents.countDocuments({})) === 100, {
    ms: 30_000,
  });
  await until('the mailbox is empty', async () => (await bench.mailbox()).ready === 0);
  expect(await bench.letters()).toEqual([]);
  expect(await ingest.stop()).toBe(0);
}, 150_000);
