import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it, test } from 'vitest';
import {
  jobId,
  openQueues,
  openWorker,
  type Disposition,
  type Queues,
  type WorkItem,
} from '../../src/queue/index.js';
import { freePort, LOG, through } from '../support/actors/bench.js';
import { STRANGE_IDS } from '../support/actors/envelopes.js';
import { startProxy } from '../support/proxy.js';
import { freshStores, type StoreEnv, type Stores } from '../support/stores.js';
import { until } from '../support/until.js';

let stores: Stores;
let env: StoreEnv;
let queues: Queues;
let redis: Redis;

const open = (over: Partial<{ url: string; maxWaiting: number; actors: string[] }> = {}): Queues =>
  openQueues({
    url: env.REDIS_URL,
    prefix: env.REDIS_PREFIX,
    actors: ['receipt', 'small', 'crowd', 'sights', 'strange', 'runs'],
    maxWaiting: 1_000,
    log: LOG,
    ...over,
  });
const reachable = (some: Queues) => until('Redis is reached', () => some.fault() === undefined);

beforeAll(async () => {
  stores = await freshStores();
  env = stores.env;
  queues = open();
  redis = new Redis(env.REDIS_URL);
  await reachable(queues);
});
afterAll(async () => {
  await queues.close();
  redis.disconnect();
  await stores.drop();
});

const ticket = (messageId: string, attemptsLeft = 3) => ({ messageId, generation: 1, attemptsLeft });
const key = (actor: string, rest: string) => `${env.REDIS_PREFIX}:${actor}:${rest}`;

/** A worker that ends its jobs as told, and what it was handed. */
async function working<T>(
  actor: string,
  run: (item: WorkItem) => Promise<Disposition>,
  use: () => Promise<T>,
): Promise<T> {
  const worker = openWorker({
    url: env.REDIS_URL,
    prefix: env.REDIS_PREFIX,
    actor,
    name: 'test',
    concurrency: 10,
    lockMs: 5_000,
    log: LOG,
    run,
    onUnfit: (error) => expect.unreachable(error.message),
  });
  worker.start();
  try {
    return await use();
  } finally {
    await worker.stop();
  }
}

test('I-03 no id breaks the queue, and each has a job of its own', async () => {
  for (const id of STRANGE_IDS) expect(await queues.add('strange', ticket(id))).toBe(true);
  expect((await queues.counts('strange')).waiting).toBe(STRANGE_IDS.length);
  await queues.add('strange', ticket('control'));
  const seen: (string | undefined)[] = [];
  await working(
    'strange',
    async ({ messageId }) => {
      seen.push(messageId);
      return { kind: 'done' };
    },
    () => until('the control is handed out', () => seen.length === STRANGE_IDS.length + 1),
  );
  expect([...seen].sort()).toEqual([...STRANGE_IDS, 'control'].sort());
});

it('keeps one job for a message however often it is added', async () => {
  for (let time = 0; time < 3; time += 1) await queues.add('receipt', ticket('again'));
  expect((await queues.counts('receipt')).waiting).toBe(1);
});

it('takes no more than its cap', async () => {
  const small = open({ maxWaiting: 3 });
  await reachable(small);
  const taken = [];
  for (let index = 0; index < 6; index += 1) taken.push(await small.add('small', ticket(`c-${index}`)));
  expect(taken).toEqual([true, true, true, false, false, false]);
  expect((await small.counts('small')).waiting).toBe(3);
  await small.close();
});

it('takes no more than its cap when many ask at once', async () => {
  const small = open({ maxWaiting: 5 });
  await reachable(small);
  const taken = await Promise.all(
    Array.from({ length: 50 }, (_, index) => small.add('crowd', ticket(`c-${index}`))),
  );
  expect(taken.filter(Boolean)).toHaveLength(5);
  expect((await small.counts('crowd')).waiting).toBe(5);
  await small.close();
});

describe('without Redis', () => {
  it('fails within 2 s when it is away at the start, cut or frozen, and recovers by itself', async () => {
    const proxy = await startProxy({ host: '127.0.0.1', port: Number(new URL(env.REDIS_URL).port) });
    proxy.cut();
    const cut = open({ url: through(env.REDIS_URL, proxy.port) });
    const timed = async (messageId: string): Promise<number> => {
      const began = Date.now();
      await expect(cut.add('receipt', ticket(messageId))).rejects.toThrow();
      return Date.now() - began;
    };
    expect(await timed('r-1')).toBeLessThan(2_000);
    expect(cut.fault()).toMatch(/Redis cannot be reached/);
    await until('it tried to connect', () => proxy.accepted > 0);

    proxy.heal();
    await reachable(cut);
    expect(await cut.add('receipt', ticket('r-2'))).toBe(true);
    proxy.freeze();
    expect(await timed('r-3')).toBeLessThan(2_500);
    proxy.heal();
    proxy.cut();
    expect(await timed('r-4')).toBeLessThan(2_000);
    proxy.heal();
    await until('an add succeeds again', () => cut.add('receipt', ticket('r-5')));
    await cut.close();
    await proxy.close();
  });

  it('fails at once where nobody listens', async () => {
    const nowhere = open({ url: `redis://127.0.0.1:${await freePort()}` });
    const began = Date.now();
    await expect(nowhere.add('receipt', ticket('n-1'))).rejects.toThrow();
    expect(Date.now() - began).toBeLessThan(2_000);
    await nowhere.close();
  });
});

it('sees what a job id stands for in every state', async () => {
  const sight = (messageId: string) => queues.sight('sights', messageId, 1);
  expect(await sight('s')).toBe('absent');
  await queues.add('sights', { ...ticket('delayed'), delayMs: 60_000 });
  expect(await sight('delayed')).toBe('delayed');
  await queues.add('sights', ticket('orphan'));
  expect(await sight('orphan')).toBe('waiting');
  expect(await redis.lrem(key('sights', 'wait'), 1, jobId('orphan', 1))).toBe(1);
  expect(await sight('orphan')).toBe('orphan');
  await queues.add('sights', ticket('orphan')); // ignored: this is why the sweeper has to see it
  expect(await sight('orphan')).toBe('orphan');
  await queues.remove('sights', 'orphan', 1);
  expect(await sight('orphan')).toBe('absent');

  for (const id of ['active', 'done', 'dead']) await queues.add('sights', ticket(id));
  let release: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  await working(
    'sights',
    async ({ messageId }) => {
      if (messageId === 'active') await held;
      return messageId === 'dead' ? { kind: 'dead', error: new Error('no more') } : { kind: 'done' };
    },
    async () => {
      await until('it is done', async () => (await sight('done')) === 'completed');
      await until('it failed', async () => (await sight('dead')) === 'failed');
      await until('it is active', async () => (await sight('active')) === 'active');
      await expect(queues.remove('sights', 'active', 1)).rejects.toThrow(/locked/);
      release();
    },
  );
});

describe('a job', () => {
  it('waits exactly what was drawn before its next try', async () => {
    await queues.add('runs', ticket('retry'));
    const starts: number[] = [];
    await working(
      'runs',
      async () => {
        starts.push(Date.now());
        return starts.length === 1
          ? { kind: 'retry', inMs: 700, error: new Error('once') }
          : { kind: 'done' };
      },
      () => until('it ran twice', () => starts.length === 2),
    );
    expect(starts[1]! - starts[0]!).toBeGreaterThanOrEqual(700);
    expect(starts[1]! - starts[0]!).toBeLessThan(2_500);
  });

  it('goes on when its own attempts are used up and the document grants more', async () => {
    await queues.add('runs', ticket('more', 1));
    let starts = 0;
    await working(
      'runs',
      async () => {
        starts += 1;
        return starts < 4 ? { kind: 'retry', inMs: 10, error: new Error('again') } : { kind: 'done' };
      },
      () => until('it is done', async () => (await queues.sight('runs', 'more', 1)) === 'completed'),
    );
    expect(starts).toBe(4);
  });

  it('uses no try when it is put off or handed back', async () => {
    await queues.add('runs', ticket('later', 1));
    let starts = 0;
    await working(
      'runs',
      async () => {
        starts += 1;
        if (starts === 1) return { kind: 'later', inMs: 30 };
        return starts === 2 ? { kind: 'hand back' } : { kind: 'done' };
      },
      () => until('it is done', async () => (await queues.sight('runs', 'later', 1)) === 'completed'),
    );
    expect(starts).toBe(3);
    expect(await redis.hget(key('runs', jobId('later', 1)), 'stc')).toBeNull();
    expect((await redis.hgetall(key('runs', jobId('later', 1)))).atm).toBe('1');
  });
});

it('tells a lost Redis by its presence', async () => {
  expect(await queues.presence()).toBe(false);
  await queues.markPresence();
  expect(await queues.presence()).toBe(true);
  await redis.del(`${env.REDIS_PREFIX}:presence`);
  expect(await queues.presence()).toBe(false);
});
