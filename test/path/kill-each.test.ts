import { createAdaptorServer } from '@hono/node-server';
import { MongoClient } from 'mongodb';
import type { AddressInfo } from 'node:net';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createApp } from '../../examples/deliveries/app.js';
import { receiveMail, type Mailbox } from '../../examples/deliveries/mailbox.js';
import { play, type Played } from '../../examples/deliveries/player.js';
import { migrateTables } from '../../examples/deliveries/tables.js';
import { topicMatches } from '../../demo/topic.js';
import { deadLetterQueue, LETTER_AUDIT, UNROUTED } from '../../src/broker/index.js';
import { notify } from '../../src/processors/notify.js';
import { openQueues, type Queues } from '../../src/queue/index.js';
import { createLog } from '../../src/runtime/log.js';
import { pause } from '../../src/runtime/loop.js';
import { killAll, startProcess, startType, type Running } from '../support/processes.js';
import { freshStores, management, type Stores } from '../support/stores.js';
import { until } from '../support/until.js';

const COUNT = 2_000;
const SECRET = 'a-secret-of-the-test';
const TYPES = {
  relay: ['relay'],
  ingest: ['ingest'],
  notify: ['runner', 'notify'],
  stats: ['runner', 'stats'],
  sweeper: ['sweeper'],
} as const;
type TypeName = keyof typeof TYPES;

let stores: Stores;
let mailbox: Mailbox;
let pool: pg.Pool;
let mongo: MongoClient;
let queues: Queues;
let server: ReturnType<typeof createAdaptorServer>;
let env: NodeJS.ProcessEnv;
const processes = new Map<TypeName, Running>();

beforeAll(async () => {
  stores = await freshStores();
  mailbox = await receiveMail({});
  env = {
    ...stores.env,
    SMTP_URL: mailbox.url,
    LOG_LEVEL: 'info',
    // Times scaled down alike: what takes a minute in production takes seconds here.
    LEASE_MS: '4000',
    SWEEP_INTERVAL_MS: '500',
    SWEEP_MIN_AGE_MS: '2000',
    RELAY_WINDOW: '50',
  };
  const migration = startProcess(process.execPath, ['dist/cli/main.js', 'migrate'], env);
  expect(await migration.ended, migration.text.join('\n')).toBe(0);
  pool = new pg.Pool({ connectionString: stores.env.DATABASE_URL, max: 10 });
  pool.on('error', () => undefined);
  await migrateTables(pool);
  mongo = new MongoClient(stores.env.MONGODB_URI);
  queues = openQueues({
    url: stores.env.REDIS_URL,
    prefix: stores.env.REDIS_PREFIX,
    actors: ['notify', 'stats'],
    maxWaiting: 1_000_000,
    log: createLog({ level: 'silent', process: 'test' }),
  });
  server = createAdaptorServer({ fetch: createApp({ pool, secret: SECRET }).fetch });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});

afterAll(async () => {
  await killAll();
  server.close();
  await mailbox.close();
  await pool.end();
  await mongo.close();
  await queues.close();
  await stores.drop();
});

const start = (name: TypeName): void => {
  const [type, ...args] = TYPES[name];
  processes.set(name, startType(type, args, env));
};

/** Kills while `inFlight` answers more than none, and says how many there were just after the kill. */
async function killInFlight(name: TypeName, inFlight: () => Promise<number>): Promise<number> {
  const victim = processes.get(name)!;
  const some = async (): Promise<boolean> => (await inFlight()) > 0;
  await until(
    `work in flight for ${name}`,
    async () => {
      // Held still, so that what is seen is still in flight when it dies; twice, for what a store was still doing.
      victim.kill('SIGSTOP');
      if ((await some()) && (await pause(50).then(some))) return true;
      victim.kill('SIGCONT');
      return false;
    },
    { ms: 60_000, everyMs: 2 },
  );
  victim.kill('SIGKILL');
  expect(await victim.ended).toBe('SIGKILL');
  const left = await inFlight();
  start(name);
  return left;
}

test(`${COUNT} deliveries, each process type killed with -9 once in the middle: each has its effect`, async () => {
  for (const name of Object.keys(TYPES) as TypeName[]) start(name);
  for (const running of processes.values()) await running.line('process.started');
  const { port } = server.address() as AddressInfo;
  // The mailboxes are bound before the first event: an unbound one would be returned, which is another test.
  await until('both mailboxes have a consumer', async () => {
    const listed = (await management('GET', `queues/${stores.env.REDIS_PREFIX}`)) as {
      name: string;
      consumers?: number;
    }[];
    return ['twinbox.notify', 'twinbox.stats'].every((name) => listed.some((queue) => queue.name === name));
  });

  const playing: Promise<Played> = play({
    url: `http://127.0.0.1:${port}/webhooks/github`,
    secret: SECRET,
    count: COUNT,
    redeliveries: 0.1,
    concurrency: 8,
  });
  const documents = (actor: string) => mongo.db().collection<{ messageId: string }>(`inbox_${actor}`);
  const unfinished = (actor: string) => documents(actor).countDocuments({ processedAt: null, deadAt: null });
  const leased = (actor: string) =>
    documents(actor).countDocuments({ processedAt: null, lease: { $exists: true } });
  const pending = async (): Promise<number> => {
    const { rows } = await pool.query<{ count: number }>(
      'SELECT count(*)::int FROM outbox WHERE published_at IS NULL',
    );
    return rows[0]!.count;
  };
  const published = async (): Promise<number> => {
    const { rows } = await pool.query<{ count: number }>(
      'SELECT count(*)::int FROM outbox WHERE published_at IS NOT NULL',
    );
    return rows[0]!.count;
  };

  await until('the first tenth is published', async () => (await published()) > COUNT / 10, { ms: 60_000 });
  const left = {
    relay: await killInFlight('relay', pending),
    ingest: await killInFlight(
      'ingest',
      async () => (await published()) - (await documents('stats').countDocuments({})),
    ),
    stats: await killInFlight('stats', () => leased('stats')),
    notify: await killInFlight('notify', () => leased('notify')),
    sweeper: await killInFlight('sweeper', () => unfinished('stats')),
  };
  // The fault took place: each left work behind when it died.
  for (const [name, count] of Object.entries(left))
    expect(count, `in flight when ${name} was killed`).toBeGreaterThan(0);

  const played = await playing;
  expect(played).toMatchObject({ refused: 0, unknown: [] });
  expect(played.deliveries).toHaveLength(COUNT);
  await until(
    'everything is processed',
    async () =>
      (await pending()) === 0 &&
      (await unfinished('stats')) + (await unfinished('notify')) === 0 &&
      (await documents('stats').countDocuments({})) >= COUNT,
    { ms: 120_000 },
  );

  // Every committed delivery, and nothing else, by id.
  const { rows } = await pool.query<{ id: string; type: string }>(
    'SELECT event_id::text AS id, type FROM outbox ORDER BY id',
  );
  const idsOf = async (actor: string): Promise<string[]> =>
    (
      await documents(actor)
        .find({ processedAt: { $type: 'date' } })
        .project<{ messageId: string }>({ messageId: 1 })
        .toArray()
    )
      .map(({ messageId }) => messageId)
      .sort();
  const forNotify = rows
    .filter(({ type }) => notify.subscribes.some((pattern) => topicMatches(pattern, type)))
    .map(({ id }) => id);
  expect(rows).toHaveLength(COUNT);
  expect(await idsOf('stats')).toEqual(rows.map(({ id }) => id).sort());
  expect(await idsOf('notify')).toEqual(forNotify.sort());

  // Effects: counted exactly once each; mailed at least once each, under one id for each message.
  const counters = await mongo.db().collection<{ deliveries: number }>('stats_repository').find().toArray();
  expect(counters.reduce((sum, { deliveries }) => sum + deliveries, 0)).toBe(COUNT);
  expect([...mailbox.messages.values()].map(({ eventId }) => eventId).sort()).toEqual(forNotify);

  // Nothing is left over anywhere.
  for (const actor of ['notify', 'stats']) {
    await until(
      `no job of ${actor} is left`,
      async () => {
        const { waiting, delayed, active, failed } = await queues.counts(actor);
        return waiting + delayed + active + failed === 0;
      },
      { ms: 30_000 },
    );
    expect(
      await documents(actor).countDocuments({
        $or: [{ lease: { $exists: true } }, { deadAt: { $exists: true } }],
      }),
    ).toBe(0);
  }
  await until(
    'no message is left in the broker',
    async () => {
      const listed = (await management('GET', `queues/${stores.env.REDIS_PREFIX}`)) as {
        name: string;
        messages?: number;
      }[];
      expect(listed.map(({ name }) => name).sort()).toEqual(
        [
          ...['notify', 'stats'].flatMap((actor) => [`twinbox.${actor}`, deadLetterQueue(actor)]),
          LETTER_AUDIT,
          UNROUTED,
        ].sort(),
      );
      return listed.every(({ messages }) => messages === 0);
    },
    { ms: 30_000 },
  );
  for (const running of processes.values()) expect(await running.stop()).toBe(0);
}, 300_000);
