import { execFileSync } from 'node:child_process';
import { MongoClient } from 'mongodb';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { processors } from '../../src/processors/index.js';
import { jobId } from '../../src/queue/index.js';
import { killAll, startType } from '../support/processes.js';
import { freshStores, type Stores } from '../support/stores.js';
import { until } from '../support/until.js';
import { startConsole, USER, type SendOptions, type TestConsole } from './console.js';
import { migrate, openStatsQueue, seedWaiting } from './seed.js';

const COUNT = 1_000;
const IDS = Array.from({ length: COUNT }, (_, index) => `waiting-${index}`);
const JOB = jobId('waiting-7', 1);
const QUEUE = '/board/api/queues/stats';

let stores: Stores;
let board: TestConsole;
let stats: ReturnType<typeof openStatsQueue>;
let cookie: string;

beforeAll(async () => {
  stores = await freshStores();
  await migrate(stores.env);
  await seedWaiting(stores.env, IDS);
  board = await startConsole(stores.env);
  cookie = await board.login();
  stats = openStatsQueue(stores.env);
});
afterAll(async () => {
  await killAll();
  await stats.close();
  await stores.drop();
});

const json = (body: unknown): SendOptions => ({
  cookie,
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify(body),
});

test.each([
  ['PUT', '/empty', {}],
  ['PUT', '/clean/waiting', {}],
  ['PUT', '/clean/wait', {}],
  ['PUT', '/obliterate', { force: true }],
  ['POST', '/add', { name: 'x', data: {}, options: { jobId: 'active' } }],
  ['PATCH', `/${JOB}/update-data`, { jobData: { messageId: 'another' } }],
  ['PATCH', `/${JOB}/delay`, { delay: 1 }],
  ['PATCH', `/${JOB}/priority`, { priority: 1 }],
  ['PUT', `/${JOB}/clean`, {}],
  ['PUT', `/${JOB}/promote`, {}],
  ['PUT', `/${JOB}/retry`, {}],
  ['PUT', `/${JOB}/remove-unprocessed-children`, {}],
  ['PUT', '/retry/failed', {}],
  ['PUT', '/promote', {}],
  ['PUT', '/concurrency', { concurrency: 1 }],
  ['PUT', '/rate-limit', { max: 1, duration: 1_000 }],
  ['PUT', '/rate-limit/release', {}],
  ['PUT', '/job-schedulers/x/remove', {}],
  ['PUT', '/job-schedulers/x/run', {}],
])(`O-02 %s %s is refused and audited, and ${COUNT} still wait`, async (method, path, body) => {
  const auditedBefore = board.process.lines.length;
  const answer = await board.send(method, QUEUE + path, json(body));
  expect(answer.status).toBe(403);
  expect((JSON.parse(answer.text) as { message: string }).message).toMatch(/^Refused: the inbox, not Redis/);
  const line = await until('the audit line', () =>
    board.process.lines.slice(auditedBefore).find(({ event }) => event === 'web.refused'),
  );
  expect(line).toMatchObject({ level: 'warn', user: USER, actor: 'stats' });
  expect(line.action).toMatch(new RegExp(`^${method.toLowerCase()} /api/queues/:queueName/`));
  expect(await stats.queue.getWaitingCount()).toBe(COUNT);
  expect((await stats.queue.getJob(JOB))?.data).toEqual({ messageId: 'waiting-7' });
});

test('every writing route that the board has is refused, but pause and resume', async () => {
  const { appRoutes } = (await import('@bull-board/api/dist/routes.js')) as {
    appRoutes: { api: { method: string; route: string }[] };
  };
  const writes = appRoutes.api.filter(({ method }) => method !== 'get');
  expect(writes.length).toBeGreaterThan(15);
  const open: string[] = [];
  for (const { method, route } of writes) {
    const path = route.replace(':queueName', 'stats').replace(':jobId', JOB).replace(/:\w+/, 'x');
    const { status } = await board.send(method.toUpperCase(), `/board${path}`, json({}));
    if (status !== 403) open.push(`${method} ${route} ${status}`);
  }
  expect(open.sort()).toEqual([
    'put /api/queues/:queueName/pause 200',
    'put /api/queues/:queueName/resume 200',
    'put /api/queues/pause 200',
    'put /api/queues/resume 200',
  ]);
  expect([await stats.queue.isPaused(), await stats.queue.getWaitingCount()]).toEqual([false, COUNT]);
});

test('pause and resume work, are audited, and the overview says it', async () => {
  expect((await board.send('PUT', `${QUEUE}/pause`, json({}))).status).toBe(200);
  expect(await stats.queue.isPaused()).toBe(true);
  await until('the overview says it', async () =>
    (await board.send('GET', '/', { cookie })).text.includes('the queue of stats is paused'),
  );
  expect((await board.send('PUT', `${QUEUE}/resume`, json({}))).status).toBe(200);
  expect(await stats.queue.isPaused()).toBe(false);
  const actions = board.process.lines
    .filter(({ event, actor }) => event === 'web.action' && actor === 'stats')
    .map(({ user, action }) => [user, action]);
  expect(actions.slice(-2)).toEqual([
    [USER, 'put /api/queues/:queueName/pause'],
    [USER, 'put /api/queues/:queueName/resume'],
  ]);
});

test('of a job its message id and trace are shown, whatever else somebody put into it', async () => {
  const foreign = await stats.queue.add(
    'x',
    { messageId: 'm', traceparent: '00-1', card: '4111' },
    { delay: 3_600_000 },
  );
  const { text } = await board.send('GET', `${QUEUE}/${foreign.id ?? ''}`, { cookie });
  await foreign.remove();
  expect((JSON.parse(text) as { job: { data: unknown } }).job.data).toEqual({
    messageId: 'm',
    traceparent: '00-1',
  });
  expect(text).not.toContain('4111');
});

test('no page reads the whole queue at once', async () => {
  const all = await board.send('GET', '/board/api/queues?activeQueue=stats&jobsPerPage=100000', { cookie });
  expect(all.status).toBe(400);
});

test('O-03 one version of the queue library, and the board lists every queue', async () => {
  const listed = execFileSync(
    'npm',
    ['ls', '--json', 'bullmq', 'ioredis', '@bull-board/api', '@bull-board/ui'],
    { encoding: 'utf8' },
  );
  interface Node {
    version?: string;
    dependencies?: Record<string, Node>;
  }
  const versions = new Map<string, Set<string>>();
  const walk = ({ dependencies = {} }: Node): void => {
    for (const [name, node] of Object.entries(dependencies)) {
      if (node.version !== undefined) versions.set(name, (versions.get(name) ?? new Set()).add(node.version));
      walk(node);
    }
  };
  walk(JSON.parse(listed) as Node);
  for (const name of ['bullmq', 'ioredis', '@bull-board/api', '@bull-board/ui'])
    expect(versions.get(name)?.size, name).toBe(1);
  const { status, text } = await board.send('GET', '/board/api/queues', { cookie });
  const names = (JSON.parse(text) as { queues: { name: string }[] }).queues.map(({ name }) => name);
  expect([status, names.sort()]).toEqual([200, Object.keys(processors).sort()]);
});

test(`O-02 drained by hand, all ${COUNT} are back with the sweeper, and each has its effect once`, async () => {
  await stats.queue.drain();
  expect(await stats.queue.getWaitingCount()).toBe(0);
  const env = { ...stores.env, SWEEP_INTERVAL_MS: '500', SWEEP_MIN_AGE_MS: '1000' };
  const sweeper = startType('sweeper', [], env);
  await until('all wait again', async () => (await stats.queue.getWaitingCount()) === COUNT, { ms: 20_000 });
  const runner = startType('runner', ['stats'], env);
  const mongo = new MongoClient(stores.env.MONGODB_URI);
  const db = mongo.db();
  const isProcessed = { processedAt: { $type: 'date' } };
  await until(
    'all are processed',
    async () => (await db.collection('inbox_stats').countDocuments(isProcessed)) === COUNT,
    { ms: 50_000 },
  );
  const effects = await db.collection('stats_repository').find().toArray();
  await mongo.close();
  expect(effects).toMatchObject([{ deliveries: COUNT }]);
  expect(await Promise.all([sweeper.stop(), runner.stop()])).toEqual([0, 0]);
}, 90_000);
