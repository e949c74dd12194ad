import { BSON } from 'mongodb';
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { defineProcessor } from '../../src/actor/index.js';
import { claim, finish, record, type ClaimRequest, type InboxDocument } from '../../src/inbox/index.js';
import { jobId } from '../../src/queue/index.js';
import { createRunner } from '../../src/runner/run.js';
import { keepLeases } from '../../src/runner/leases.js';
import { gather } from '../../src/runtime/gather.js';
import { noProbe } from '../../src/runtime/probe.js';
import { LOG, openBench, type Bench } from '../support/actors/bench.js';
import { envelope, GOOD_BODY } from '../support/actors/envelopes.js';
import { THROWN } from '../support/actors/thrown.js';
import { killAll, type Running } from '../support/processes.js';
import { until } from '../support/until.js';

let bench: Bench;
let redis: Redis;

beforeAll(async () => {
  bench = await openBench();
  redis = new Redis(bench.env.REDIS_URL);
});
afterEach(killAll);
afterAll(async () => {
  redis.disconnect();
  await bench.close();
});

const started = async (over: NodeJS.ProcessEnv = {}, actor = 'receipt'): Promise<Running> => {
  const running = bench.start(actor, over);
  await running.line('process.started');
  return running;
};
const job = (messageId: string) => redis.hgetall(`${bench.env.REDIS_PREFIX}:receipt:${jobId(messageId, 1)}`);
const sight = (messageId: string) => bench.queues.sight('receipt', messageId, 1);
const document = async (messageId: string): Promise<InboxDocument> => (await bench.document(messageId))!;
const when = (messageId: string, what: string, holds: (found: InboxDocument) => boolean, ms = 20_000) =>
  until(
    `${messageId}: ${what}`,
    async () => {
      const found = await document(messageId);
      return holds(found) && found;
    },
    { ms },
  );
const dead = (messageId: string) => when(messageId, 'dead', ({ deadAt }) => deadAt instanceof Date);
const seen = async (messageId: string) => (await bench.runs(messageId)).map((run) => run.seen ?? []);
const begun = (messageId: string, times = 1) =>
  until(`${messageId} has begun ${times} times`, async () => (await bench.runs(messageId)).length >= times);

describe('whatever an effect does', () => {
  test('P-01 what is thrown ends as two failures and a dead document; the process lives, its neighbours flow', async () => {
    const throwing = THROWN.filter(({ error }) => error !== undefined);
    for (const [index, { name }] of throwing.entries()) {
      await bench.plan(`p01-${index}`, name);
      await bench.accept(`p01-${index}`);
      await bench.accept(`p01-good-${index}`);
    }
    const receipt = await started();
    for (const [index, { name, error }] of throwing.entries()) {
      const found = await dead(`p01-${index}`);
      expect(found, name).toMatchObject({ deadReason: 'failed', starts: 2, failures: 2, unended: 0 });
      expect(found.lastError?.name, name).toBe(error?.name);
      expect(found.lastError?.message, name).toContain(error?.contains);
      if (error?.lacks !== undefined) expect(JSON.stringify(found)).not.toContain(error.lacks);
      expect(BSON.calculateObjectSize(found), name).toBeLessThan(16_384);
      await until(`${name}: its job failed`, async () => (await sight(`p01-${index}`)) === 'failed');
      const hash = await job(`p01-${index}`);
      expect(hash.stc, name).toBeUndefined();
      if (error?.lacks !== undefined) expect(JSON.stringify(hash)).not.toContain(error.lacks);
      await bench.processed(`p01-good-${index}`);
    }
    expect((await bench.queues.counts('receipt')).active).toBe(0);
    expect(await receipt.stop()).toBe(0);
  });

  test('P-02 what is returned is nobody’s business', async () => {
    const returning = THROWN.filter(({ error }) => error === undefined);
    for (const [index, { name }] of returning.entries()) {
      await bench.plan(`p02-${index}`, name);
      await bench.accept(`p02-${index}`);
    }
    await started();
    for (const [index, { name }] of returning.entries()) {
      expect(await bench.processed(`p02-${index}`), name).toMatchObject({ failures: 0, starts: 1 });
      expect(await bench.runs(`p02-${index}`)).toHaveLength(1);
      expect(JSON.stringify(await job(`p02-${index}`)).length, name).toBeLessThan(2_048);
    }
  });

  test('P-12 a throw loses nothing, and a second delivery between two runs makes no third', async () => {
    await bench.plan('p12', 'throw', 'ok');
    await bench.accept('p12');
    await started({ RECEIPT_BACKOFF_MS: '2000' });
    await when('p12', 'failed once', ({ failures }) => failures === 1);
    expect(await record(bench.inbox, 'receipt', [envelope('p12')], 1_000)).toMatchObject([
      { kind: 'duplicate', final: false },
    ]);
    await bench.queues.add('receipt', { messageId: 'p12', generation: 1, attemptsLeft: 1 });
    expect(await bench.processed('p12')).toMatchObject({ starts: 2, failures: 1 });
    const [first, second] = (await document('p12')).runs;
    expect(second!.start.getTime() - first!.end.getTime()).toBeGreaterThanOrEqual(1_000);
    await until('its job is over', async () => (await sight('p12')) === 'completed');
    expect((await bench.runs('p12')).map(({ ended }) => ended ?? false)).toEqual([false, true]);
  });

  test('an error text that looks like an expression is kept as it is', async () => {
    await bench.plan('dollars', 'dollars');
    await bench.accept('dollars');
    await started();
    expect((await dead('dollars')).lastError).toMatchObject({
      name: '$name',
      message: '$lease of {$set: 1} is $$NOW',
    });
  });

  test('a body that the schema refuses, or that is no JSON, is dead after one start, and its values are kept out of the error', async () => {
    await bench.accept('invalid-1', { ...GOOD_BODY, email: 'secret-no-email' });
    await bench.accept('invalid-2', Buffer.from('{"secret-half'));
    await bench.accept('invalid-3', Buffer.from([0xff, 0xfe]));
    await started();
    for (const id of ['invalid-1', 'invalid-2', 'invalid-3']) {
      const found = await dead(id);
      expect(found).toMatchObject({ deadReason: 'invalid', starts: 1, lastError: { name: 'InvalidBody' } });
      expect(found.lastError!.message).not.toContain('secret');
      expect(await bench.runs(id)).toHaveLength(0);
    }
  });
});

describe('steps and commit', () => {
  test('a finished step is not run again, and a step keeps its idempotency key', async () => {
    await bench.plan('steps', 'step then throw');
    await bench.accept('steps');
    await started();
    await bench.processed('steps');
    const [first, second] = await seen('steps');
    expect(first).toHaveLength(2);
    expect(first![0]).toMatch(/^a [0-9a-f]{64}$/);
    expect(second).toEqual([first![1]]);
    expect((await document('steps')).steps?.map(({ name }) => name)).toEqual(['a', 'b']);
  });

  test('commit writes exactly once for each message, and nothing when its work throws', async () => {
    const ids = Array.from({ length: 30 }, (_, index) => `commit-${index}`);
    for (const id of ids) {
      await bench.plan(id, 'commit');
      await bench.accept(id);
    }
    await bench.plan('commit-fails', 'commit fails');
    await bench.accept('commit-fails');
    await started();
    for (const id of ids) await bench.processed(id);
    expect(await dead('commit-fails')).toMatchObject({
      failures: 2,
      lastError: { message: 'the last write is refused' },
    });
    const counts = bench.inbox.db.collection<{ _id: string; count: number }>('test_counts');
    expect(await counts.findOne({ _id: 'all' })).toMatchObject({ count: 30 });
    expect(await counts.findOne({ _id: 'never' })).toBeNull();
  });
});

describe('a run that is over', () => {
  test('by its time limit is a failure, and what it does late does nothing', async () => {
    await bench.plan('late', 'late');
    await bench.accept('late');
    await started({ RECEIPT_TIMEOUT_MS: '400', RECEIPT_ATTEMPTS: '1' });
    const before = await dead('late');
    expect(before).toMatchObject({ deadReason: 'failed', failures: 1, lastError: { name: 'EffectTimeout' } });
    await bench.release('late');
    await until('the effect has ended', async () => (await seen('late'))[0]?.includes('over'));
    expect(await seen('late')).toEqual([
      ['RunOver: the run is over: timeout', 'RunOver: the run is over: timeout', 'over'],
    ]);
    expect(await document('late')).toEqual(before);
  });

  test('keeps the message from running a second time in its process until it has settled', async () => {
    await bench.plan('deaf', 'deaf', 'ok');
    await bench.accept('deaf');
    await started({ RECEIPT_TIMEOUT_MS: '400' });
    const { nextAttemptAt } = await when('deaf', 'timed out', ({ failures }) => failures === 1);
    await until(
      'its next attempt has been due for long',
      () => Date.now() > nextAttemptAt!.getTime() + 1_500,
    );
    expect(await bench.runs('deaf')).toHaveLength(1);
    await bench.release('deaf');
    expect(await bench.processed('deaf')).toMatchObject({ starts: 2, failures: 1 });
  });

  test('by a stop gives the message back: no attempt, no lease, at once for another process', async () => {
    const [running, waiting] = [0, 5].map((from) =>
      Array.from({ length: 5 }, (_, index) => `stop-${from + index}`),
    ) as [string[], string[]];
    for (const id of running) await bench.plan(id, 'heed');
    for (const id of running) await bench.accept(id);
    const first = await started({ RECEIPT_CONCURRENCY: '5' });
    for (const id of running) await begun(id);
    for (const id of waiting) await bench.accept(id);
    first.kill('SIGTERM');
    await first.line('process.stopping');
    first.kill('SIGINT');
    const began = Date.now();
    expect(await first.ended).toBe(0);
    expect(Date.now() - began).toBeLessThan(6_000);
    for (const id of running) {
      expect(await seen(id)).toEqual([['aborted: shutdown']]);
      expect(await document(id)).toMatchObject({ failures: 0, starts: 1, unended: 0 });
      expect(await document(id)).not.toHaveProperty('lease');
      expect(await sight(id)).toBe('waiting');
      expect((await job(id)).stc).toBeUndefined();
    }
    for (const id of waiting) expect(await document(id)).toMatchObject({ starts: 0 });
    for (const id of running) await bench.release(id);
    await started({ RECEIPT_CONCURRENCY: '5' });
    const again = Date.now();
    for (const id of running) expect(await bench.processed(id)).toMatchObject({ failures: 0, starts: 2 });
    expect(Date.now() - again).toBeLessThan(2_000);
    for (const id of waiting) await bench.processed(id);
  });
});

test('a message is not run again in its process while its stamp is under way, though its job comes again', async () => {
  const leases = keepLeases(
    { inbox: bench.inbox, actor: 'receipt', owner: 'me', leaseMs: 60_000, log: LOG },
    AbortSignal.abort(),
  );
  let effects = 0;
  let stamp: () => void = () => undefined;
  const mayStamp = new Promise<void>((resolve) => (stamp = resolve));
  const run = createRunner({
    processor: defineProcessor({
      name: 'receipt',
      owner: 'tests',
      subscribes: ['order.placed'],
      schema: z.looseObject({}),
      example: {},
      attempts: 2,
      backoff: { firstMs: 10, capMs: 10 },
      concurrency: 1,
      timeoutMs: 10_000,
      effect: async () => {
        effects += 1;
      },
    }),
    resources: undefined,
    inbox: bench.inbox,
    owner: 'me',
    leaseMs: 60_000,
    leases,
    claims: gather((requests: ClaimRequest[]) => claim(bench.inbox, 'receipt', requests, 'me', 60_000), {
      maxItems: 10,
    }),
    finishes: gather<string, boolean>(
      async (ids) => {
        await mayStamp;
        return finish(bench.inbox, 'receipt', ids, 'me');
      },
      { maxItems: 10 },
    ),
    maxBodyBytes: 1_000_000,
    log: LOG,
    probe: noProbe,
    random: Math.random,
    fail: (error) => expect.unreachable(error.message),
  });
  await record(bench.inbox, 'receipt', [envelope('twice')], 60_000);
  const item = { messageId: 'twice', generation: 1, jobId: jobId('twice', 1) };
  const first = run(item);
  await until('the effect has run', () => effects === 1);
  expect(await run(item)).toMatchObject({ kind: 'later' });
  stamp();
  expect(await first).toEqual({ kind: 'done' });
  expect(await run(item)).toEqual({ kind: 'done' });
  expect(effects).toBe(1);
  expect(leases.running).toBe(0);
});
