import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { record, type InboxDocument } from '../../src/inbox/index.js';
import { openBench, through, type Bench } from '../support/actors/bench.js';
import { envelope } from '../support/actors/envelopes.js';
import { killAll, type Running } from '../support/processes.js';
import { startProxy } from '../support/proxy.js';
import { until } from '../support/until.js';

const LEASE_MS = 1_500;
let bench: Bench;

beforeAll(async () => {
  bench = await openBench();
});
afterEach(killAll);
afterAll(() => bench.close());

const started = async (over: NodeJS.ProcessEnv = {}, actor = 'receipt'): Promise<Running> => {
  const running = bench.start(actor, over);
  await running.line('process.started');
  return running;
};
const sight = (messageId: string) => bench.queues.sight('receipt', messageId, 1);
const document = async (messageId: string): Promise<InboxDocument> => (await bench.document(messageId))!;
const begun = (messageId: string, times = 1) =>
  until(`${messageId} has begun ${times} times`, async () => (await bench.runs(messageId)).length >= times);

describe('killed with -9', () => {
  test.each([
    { at: 'run.claimed', before: 0, starts: 2, runs: 1 },
    { at: 'run.effect', before: 1, starts: 2, runs: 2 },
    { at: 'run.finished', before: 1, starts: 1, runs: 1 },
  ])('at $at: $starts starts, $runs runs, processed', async ({ at, before, starts, runs }) => {
    const id = `killed-${at}`;
    await bench.accept(id);
    const probed = bench.startProbed('receipt', at);
    expect(await probed.ended).toBe('SIGKILL');
    expect(await bench.runs(id)).toHaveLength(before);
    expect(await sight(id)).toBe('active');
    await started();
    expect(await bench.processed(id)).toMatchObject({ starts, failures: 0 });
    await until('its job is over', async () => (await sight(id)) === 'completed');
    expect(await bench.runs(id)).toHaveLength(runs);
  });

  test('at run.failed: the failure stands, and the next run keeps its time', async () => {
    await bench.plan('killed-failed', 'throw', 'ok');
    await bench.accept('killed-failed');
    const over = { RECEIPT_BACKOFF_MS: '4000' };
    const probed = bench.startProbed('receipt', 'run.failed', over);
    expect(await probed.ended).toBe('SIGKILL');
    const { nextAttemptAt } = await document('killed-failed');
    await started(over);
    const found = await bench.processed('killed-failed');
    expect(found).toMatchObject({ starts: 2, failures: 1 });
    expect(found.runs[1]!.start.getTime()).toBeGreaterThanOrEqual(nextAttemptAt!.getTime());
  });

  test('P-03 twice in a row, it is processed by the third start', async () => {
    await bench.accept('p03', undefined, 8);
    for (let kill = 1; kill <= 2; kill += 1) {
      expect(await bench.startProbed('receipt', 'run.effect', { RECEIPT_ATTEMPTS: '8' }).ended).toBe(
        'SIGKILL',
      );
      expect(await bench.runs('p03')).toHaveLength(kill);
    }
    await started({ RECEIPT_ATTEMPTS: '8' });
    const found = await bench.processed('p03');
    expect(found).toMatchObject({ starts: 3, failures: 0 });
    expect(found).not.toHaveProperty('deadAt');
  });
});

test('P-06 a frozen process that wakes after another took over stops before its next step', async () => {
  await bench.plan('p06', 'two steps');
  await bench.accept('p06');
  const frozen = await started();
  await until('step a is remembered', async () => (await document('p06')).steps?.length === 1);
  frozen.kill('SIGSTOP');
  const since = Date.now();
  const second = await started();
  await begun('p06', 2);
  await bench.release('p06');
  const done = await bench.processed('p06');
  await until('three leases are over', () => Date.now() - since > 3 * LEASE_MS);
  frozen.kill('SIGCONT');
  const refused = 'RunOver: the run is over: lease lost';
  await until('the woken run was refused', async () => (await bench.runs('p06'))[0]?.seen?.includes(refused));
  expect(await frozen.stop()).toBe(0);
  const runs = await bench.runs('p06');
  expect(runs.map(({ pid }) => pid)).toEqual([frozen.pid, second.pid]);
  expect(runs.flatMap((run) => run.seen ?? [])).toEqual(['a', refused, 'b']);
  expect(runs[0]).not.toHaveProperty('ended');
  expect(await document('p06')).toEqual(done);
  expect(done).toMatchObject({ failures: 0, starts: 2 });
  expect(done.runs.at(-1)!.by).toContain(`#${second.pid}.`);
});

test('P-10 an actor whose file does not load ends, and no message is blamed', async () => {
  const ids = Array.from({ length: 100 }, (_, index) => `p10-${index}`);
  await record(
    bench.inbox,
    'fragile',
    ids.map((id) => envelope(id)),
    60_000,
  );
  for (const messageId of ids)
    await bench.queues.add('fragile', { messageId, generation: 1, attemptsLeft: 3 });
  const broken = bench.start('fragile', { FRAGILE_BREAKS: 'yes' });
  expect(await broken.ended).toBe(1);
  expect(broken.text.join('\n')).toContain('this file does not load today');
  const fragile = bench.inbox.documents('fragile');
  expect(await fragile.countDocuments({ starts: 0, failures: 0 })).toBe(100);
  expect((await bench.queues.counts('fragile')).waiting).toBe(100);
  await started({}, 'fragile');
  await until(
    'all are processed',
    async () => (await fragile.countDocuments({ processedAt: { $type: 'date' }, starts: 1 })) === 100,
  );
});

test('Redis cut off in the middle of runs: they are stamped all the same, and none runs twice', async () => {
  const proxy = await startProxy({ host: '127.0.0.1', port: Number(new URL(bench.env.REDIS_URL).port) });
  const ids = Array.from({ length: 5 }, (_, index) => `cut-${index}`);
  for (const id of ids) {
    await bench.plan(id, 'heed');
    await bench.accept(id);
  }
  const receipt = await started({ REDIS_URL: through(bench.env.REDIS_URL, proxy.port) });
  for (const id of ids) await begun(id);
  expect(proxy.open).toBeGreaterThan(0);
  proxy.cut();
  await until('no connection is open', () => proxy.open === 0);
  for (const id of ids) await bench.release(id);
  for (const id of ids) await bench.processed(id);
  proxy.heal();
  for (const id of ids) {
    await until('its job is over', async () => (await sight(id)) === 'completed', { ms: 30_000 });
    expect(await bench.runs(id)).toHaveLength(1);
    expect(await document(id)).toMatchObject({ starts: 1, failures: 0 });
  }
  await bench.accept('after-cut');
  await bench.processed('after-cut');
  expect(await receipt.stop()).toBe(0);
  await proxy.close();
});
