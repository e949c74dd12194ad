import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { record, type InboxDocument } from '../../src/inbox/index.js';
import { jobId, openWorker, type Disposition } from '../../src/queue/index.js';
import { LOG, openBench, type Bench } from '../support/actors/bench.js';
import { envelope } from '../support/actors/envelopes.js';
import { killAll, type Running } from '../support/processes.js';
import { until } from '../support/until.js';

let bench: Bench;
let redis: Redis;

beforeAll(async () => {
  bench = await openBench();
  redis = new Redis(bench.env.REDIS_URL);
});
afterEach(async () => {
  await killAll();
  await bench.documents.deleteMany({});
  // The lock of a sweeper that was killed runs out by itself only after ten seconds.
  await bench.inbox.db.collection('twinbox_lock').deleteMany({});
  const keys = await redis.keys(`${bench.env.REDIS_PREFIX}:*`);
  if (keys.length > 0) await redis.del(...keys);
  await bench.queues.markPresence();
});
afterAll(async () => {
  redis.disconnect();
  await bench.close();
});

const key = (rest: string) => `${bench.env.REDIS_PREFIX}:receipt:${rest}`;
const ids = (prefix: string, count: number) =>
  Array.from({ length: count }, (_, index) => `${prefix}-${index}`);
const sight = (messageId: string, generation = 1) => bench.queues.sight('receipt', messageId, generation);
const start = async (type: string, over: NodeJS.ProcessEnv = {}): Promise<Running> => {
  const running = bench.start(type, over);
  await running.line('process.started');
  return running;
};
/** Recorded and due at once, without a job. */
const recordAll = async (all: readonly string[]): Promise<void> => {
  expect(
    await record(
      bench.inbox,
      'receipt',
      all.map((id) => envelope(id)),
      0,
    ),
  ).toEqual(all.map(() => ({ kind: 'stored' })));
};
const set = (messageId: string, part: Partial<InboxDocument>) =>
  bench.documents.updateOne({ messageId }, { $set: part });
const allProcessed = (all: readonly string[], ms = 20_000) =>
  until(
    'all are processed',
    async () =>
      (await bench.documents.countDocuments({
        messageId: { $in: [...all] },
        processedAt: { $type: 'date' },
      })) === all.length,
    { ms },
  );
/** Some sweeps have taken place since now: a message that nothing runs came back. */
const sweptTwice = async (): Promise<void> => {
  for (const time of [1, 2]) {
    const id = `swept-${time}-${Date.now()}`;
    await recordAll([id]);
    await until('a sweep has passed', async () => (await sight(id)) !== 'absent');
  }
};
/** Makes the jobs of the messages end as told, without a look at their documents. */
async function endJobs(
  all: readonly string[],
  disposition: Disposition,
  state: 'completed' | 'failed',
): Promise<void> {
  for (const messageId of all)
    await bench.queues.add('receipt', { messageId, generation: 1, attemptsLeft: 1 });
  const worker = openWorker({
    url: bench.env.REDIS_URL,
    prefix: bench.env.REDIS_PREFIX,
    actor: 'receipt',
    name: 'test',
    concurrency: 5,
    lockMs: 5_000,
    log: LOG,
    run: async () => disposition,
    onUnfit: (error) => expect.unreachable(error.message),
  });
  worker.start();
  for (const id of all) await until(`the job of ${id} is ${state}`, async () => (await sight(id)) === state);
  await worker.stop();
}

test('S-01 a kept job that failed or completed hides no message; the document alone says what is finished', async () => {
  await recordAll(['s01-a', 's01-b', 's01-c']);
  await endJobs(['s01-a', 's01-b'], { kind: 'dead', error: new Error('stalled') }, 'failed');
  await endJobs(['s01-c'], { kind: 'done' }, 'completed');
  await set('s01-a', { failures: 1 });
  await set('s01-b', { failures: 2 });
  const sweeper = await start('sweeper');
  await start('receipt');
  await allProcessed(['s01-a', 's01-c']);
  for (const id of ['s01-a', 's01-c']) {
    expect(await bench.runs(id)).toHaveLength(1);
    expect(await bench.document(id)).toMatchObject({ generation: 2, starts: 1 });
    expect(
      sweeper.lines.filter(({ event, messageId }) => event === 'sweep.next-generation' && messageId === id),
    ).toMatchObject([{ level: 'warn' }]);
  }
  const buried = await until('b is dead', async () => {
    const found = await bench.document('s01-b');
    return found?.deadAt instanceof Date && found;
  });
  expect(buried).toMatchObject({ deadReason: 'failed', failures: 2, starts: 0 });
  expect(await bench.runs('s01-b')).toHaveLength(0);
});

test('S-02 a job that is in no list blocks nothing, and one that cannot be removed does not end the sweep', async () => {
  const all = ids('s02', 20);
  await recordAll(all);
  for (const messageId of all)
    await bench.queues.add('receipt', { messageId, generation: 1, attemptsLeft: 2 });
  const lost = all.slice(0, 10);
  for (const id of lost) {
    expect(await redis.lrem(key('wait'), 1, jobId(id, 1))).toBe(1);
    expect(await sight(id)).toBe('orphan');
  }
  const locked = key(`${jobId(lost[0]!, 1)}:lock`);
  await redis.set(locked, 'nobody');
  const sweeper = await start('sweeper');
  await start('receipt');
  await allProcessed(all.slice(1));
  expect(
    sweeper.lines.some(({ event, messageId }) => event === 'sweep.failed' && messageId === lost[0]),
  ).toBe(true);
  expect(await sight(lost[0]!)).toBe('orphan');
  await redis.del(locked);
  await allProcessed(all);
  for (const id of all) expect(await bench.runs(id)).toHaveLength(1);
});

test('S-06 jobs without their data, and ids without a job, end processed once', async () => {
  const all = ids('s06', 40);
  await recordAll(all);
  for (const messageId of all)
    await bench.queues.add('receipt', { messageId, generation: 1, attemptsLeft: 2 });
  const robbed = all.slice(0, 20);
  for (const id of robbed) expect(await redis.del(key(jobId(id, 1)))).toBe(1);
  expect(await redis.llen(key('wait'))).toBe(40);
  const running = [await start('receipt'), await start('sweeper')];
  await allProcessed(all, 30_000);
  for (const id of all) {
    expect(await bench.runs(id)).toHaveLength(1);
    expect(await bench.document(id)).toMatchObject({ failures: 0, starts: 1 });
    const errors = running.flatMap(({ lines }) =>
      lines.filter(({ level, messageId }) => level === 'error' && messageId === id),
    );
    expect(errors.length).toBeLessThanOrEqual(1);
  }
});

test('a lost Redis is noticed by its presence key, and everything unfinished comes back', async () => {
  const all = ids('lost', 30);
  await record(
    bench.inbox,
    'receipt',
    all.map((id) => envelope(id)),
    3_600_000,
  );
  for (const messageId of all)
    await bench.queues.add('receipt', { messageId, generation: 1, attemptsLeft: 2 });
  const sweeper = await start('sweeper');
  await sweptTwice();
  expect(sweeper.lines.filter(({ event }) => event === 'sweep.redis.empty')).toHaveLength(0);
  const keys = await redis.keys(`${bench.env.REDIS_PREFIX}:*`);
  expect(keys.length).toBeGreaterThan(30);
  await redis.del(...keys);
  expect(await sight(all[0]!)).toBe('absent');
  await sweeper.line('sweep.redis.empty');
  await start('receipt');
  await allProcessed(all);
  for (const id of all) expect(await bench.runs(id)).toHaveLength(1);
  expect(sweeper.lines.filter(({ event }) => event === 'sweep.redis.empty')).toHaveLength(1);
});

test('nothing is written on a quiet inbox, nor to what has a live lease', async () => {
  const [quiet, leased, waiting] = [ids('quiet', 30), ids('leased', 5), ids('not-due', 5)];
  await recordAll([...quiet, ...leased]);
  await record(
    bench.inbox,
    'receipt',
    waiting.map((id) => envelope(id)),
    3_600_000,
  );
  const now = Date.now();
  await bench.documents.updateMany(
    { messageId: { $in: quiet.slice(0, 20) } },
    { $set: { processedAt: new Date() } },
  );
  await bench.documents.updateMany(
    { messageId: { $in: quiet.slice(20) } },
    { $set: { deadAt: new Date(), deadReason: 'failed' } },
  );
  await bench.documents.updateMany(
    { messageId: { $in: leased } },
    { $set: { lease: { owner: 'x', since: new Date(now), until: new Date(now + 600_000) } } },
  );
  const look = (all: readonly string[]) =>
    bench.documents
      .find({ messageId: { $in: [...all] } })
      .sort({ messageId: 1 })
      .toArray();
  const before = await look([...quiet, ...waiting]);
  await start('sweeper');
  await sweptTwice();
  expect(await look([...quiet, ...waiting])).toEqual(before);
  for (const found of await look(leased)) {
    expect(found).toMatchObject({ generation: 1, starts: 0, lease: { owner: 'x' } });
    // Not before the lease has run out: a long run costs no look at each sweep.
    expect(found.lookAt.getTime()).toBeGreaterThan(now + 500_000);
  }
  for (const id of [...quiet, ...leased, ...waiting]) expect(await sight(id)).toBe('absent');
});

test('an honest backlog is left alone, and looked at more rarely than it is swept', async () => {
  const all = ids('backlog', 10);
  await recordAll(all);
  for (const messageId of all)
    await bench.queues.add('receipt', { messageId, generation: 1, attemptsLeft: 2 });
  await start('sweeper');
  await sweptTwice();
  for (const id of all) {
    expect(await sight(id)).toBe('waiting');
    expect(await bench.document(id)).toMatchObject({ generation: 1, starts: 0 });
  }
});

test('of two sweepers one works, and the other takes over when it stops', async () => {
  const sweepers = [await start('sweeper'), await start('sweeper')];
  const workers = () => sweepers.filter(({ lines }) => lines.some(({ event }) => event === 'sweep.enqueued'));
  await recordAll(ids('two', 20));
  await until('all are back', async () => (await sight('two-19')) === 'waiting');
  await sweptTwice();
  expect(workers()).toHaveLength(1);
  const [first] = workers();
  expect(
    new Set(
      first!.lines.flatMap(({ event, messageId }) =>
        event === 'sweep.enqueued' && messageId?.startsWith('two-') ? [messageId] : [],
      ),
    ).size,
  ).toBe(20);
  expect(await first!.stop()).toBe(0);
  await recordAll(['after']);
  await until('it is back', async () => (await sight('after')) === 'waiting');
  await until('the other one worked', () => workers().length === 2);
});

test('puts no more into Redis than the cap, and tops up until all are processed', async () => {
  const all = ids('cap', 25);
  await recordAll(all);
  await start('sweeper', { QUEUE_MAX_WAITING: '5' });
  await until('the cap is reached', async () => (await bench.queues.counts('receipt')).waiting === 5);
  await start('receipt');
  let most = 0;
  await until(
    'all are processed',
    async () => {
      most = Math.max(most, (await bench.queues.counts('receipt')).waiting);
      return (
        (await bench.documents.countDocuments({
          messageId: { $in: all },
          processedAt: { $type: 'date' },
        })) === 25
      );
    },
    { ms: 30_000, everyMs: 5 },
  );
  expect(most).toBeLessThanOrEqual(5);
});

test('killed with -9 after it enqueued: the same job again, one run', async () => {
  await recordAll(['killed']);
  const probed = bench.startProbed('sweeper', 'sweep.enqueued');
  expect(await probed.ended).toBe('SIGKILL');
  expect(await sight('killed')).toBe('waiting');
  await bench.inbox.db.collection('twinbox_lock').deleteMany({});
  await start('sweeper');
  await sweptTwice();
  await start('receipt');
  await allProcessed(['killed']);
  expect(await bench.runs('killed')).toHaveLength(1);
  expect(await bench.document('killed')).toMatchObject({ generation: 1, starts: 1 });
});
