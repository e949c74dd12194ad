import { connect, type ChannelModel, type ConfirmChannel } from 'amqplib';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { migrateOutbox } from '../../src/outbox/index.js';
import { pause } from '../../src/runtime/loop.js';
import { killAll, startProcess, type Running } from '../support/processes.js';
import { freshStores, management, type Stores } from '../support/stores.js';
import { actorsModule, drain, firsts, topologyArgs, topologyCommand } from '../support/topology.js';
import { until } from '../support/until.js';

let stores: Stores;
let model: ChannelModel;
let channel: ConfirmChannel;
let vhost: string;
let env: NodeJS.ProcessEnv;

const QUEUE = 'twinbox.a';
const TEMPORARY = 'twinbox.a.migrating';
/** What an earlier version, or a person, declared. */
const OLD = {
  quorum: { 'x-queue-type': 'quorum', 'x-delivery-limit': 20 },
  classic: { 'x-queue-type': 'classic' },
};

beforeAll(async () => {
  stores = await freshStores();
  vhost = new URL(stores.env.RABBITMQ_URL).pathname.slice(1);
  env = { ...stores.env, TWINBOX_PROCESSORS: actorsModule({ a: ['order.*'] }) };
  model = await connect(stores.env.RABBITMQ_URL);
  model.on('error', () => undefined);
});
afterAll(async () => {
  await model.close();
  await stores.drop();
});
beforeEach(async () => {
  channel = await model.createConfirmChannel();
  channel.on('error', () => undefined);
});
afterEach(async () => {
  await killAll();
  await channel.close();
  for (const { name } of (await management('GET', `queues/${vhost}`)) as { name: string }[])
    await management('DELETE', `queues/${vhost}/${name}`);
  for (const name of await names()) await management('DELETE', `exchanges/${vhost}/${name}`);
});

const blind = (): NodeJS.ProcessEnv => ({ ...env, RABBITMQ_MANAGEMENT_URL: '' });

/** Everything as it must be, but for the mailbox: that is an old one, bound, with content. */
async function oldMailbox(args: Record<string, unknown>, count: number): Promise<string[]> {
  expect((await topologyCommand(env, 'apply')).code).toBe(0);
  await channel.deleteQueue(QUEUE);
  await channel.assertQueue(QUEUE, { durable: true, arguments: args });
  await channel.bindQueue(QUEUE, 'twinbox.events', 'order.*');
  return publish('m', count);
}

async function publish(prefix: string, count: number): Promise<string[]> {
  const ids = Array.from({ length: count }, (_, index) => `${prefix}-${index}`);
  for (const messageId of ids)
    channel.publish('twinbox.events', 'order.placed', Buffer.from(messageId), {
      messageId,
      persistent: true,
    });
  await channel.waitForConfirms();
  return ids;
}

const migrate = (over: NodeJS.ProcessEnv = env): ReturnType<typeof topologyCommand> =>
  topologyCommand(over, 'apply', '--migrate-queue', QUEUE);

const startMigration = (): Running =>
  startProcess(process.execPath, topologyArgs('apply', '--migrate-queue', QUEUE), blind());

async function names(): Promise<string[]> {
  const queues = (await management('GET', `queues/${vhost}`)) as { name: string }[];
  const exchanges = (await management('GET', `exchanges/${vhost}`)) as { name: string }[];
  return [...queues, ...exchanges].map(({ name }) => name).filter((name) => /migrat/.test(name));
}

/** Ready messages, by a channel of its own: the broker closes it when there is no such queue. */
async function ready(queue: string): Promise<number | undefined> {
  const asking = await model.createChannel();
  asking.on('error', () => undefined);
  try {
    const { messageCount } = await asking.checkQueue(queue);
    await asking.close();
    return messageCount;
  } catch {
    return undefined;
  }
}

test.each([
  ['quorum', 'with the management API', true],
  ['quorum', 'without it', false],
  ['classic', 'with the management API', true],
  ['classic', 'without it', false],
] as const)('a %s queue made anew %s keeps its content, its order and its bindings', async (type, _, api) => {
  const ids = await oldMailbox(OLD[type], 300);
  await channel.assertExchange('legacy', 'direct', { durable: true });
  await channel.bindQueue(QUEUE, 'legacy', 'theirs');
  const special = {
    messageId: 'special',
    type: 'order.placed',
    correlationId: 'c',
    contentType: 'application/json',
    timestamp: 1_700_000_000,
    headers: { mine: 'kept', 'x-sequence': 7 },
  };
  channel.publish('legacy', 'theirs', Buffer.from('body'), special);
  await channel.waitForConfirms();

  const done = await migrate(api ? env : blind());
  expect(done, done.text).toMatchObject({ code: 0 });
  expect(await names()).toEqual([]);
  expect((await topologyCommand(env, 'check')).code).toBe(0);
  const taken = await drain(channel, QUEUE);
  expect(taken.map(({ id }) => id)).toEqual([...ids, 'special']);
  expect(taken[0]).toMatchObject({ routingKey: 'order.placed', body: ids[0] });
  expect(taken.at(-1)).toMatchObject({
    routingKey: 'theirs',
    body: 'body',
    properties: {
      ...special,
      headers: { ...special.headers, 'x-original-exchange': 'legacy', 'x-original-routing-key': 'theirs' },
    },
  });
  // What the API shows of other people's bindings is bound again; what cannot be seen cannot.
  channel.publish('legacy', 'theirs', Buffer.from('later'), { messageId: 'later' });
  await channel.waitForConfirms();
  expect((await drain(channel, QUEUE)).map(({ id }) => id)).toEqual(api ? ['later'] : []);
  await channel.deleteExchange('legacy');
});

test('killed by -9 on the way there, in between and on the way back, a migration goes on where it stood', async () => {
  const ids = await oldMailbox(OLD.quorum, 6_000);

  const there = startMigration();
  await until('some are moved', async () => ((await ready(TEMPORARY)) ?? 0) > 1_000);
  there.kill('SIGKILL');
  expect(await there.ended).toBe('SIGKILL');
  await until('the broker has taken back what it held', async () => {
    const [old, temporary] = [await ready(QUEUE), await ready(TEMPORARY)];
    return old !== undefined && temporary !== undefined && old + temporary >= ids.length;
  });
  expect(await ready(QUEUE)).toBeGreaterThan(0);
  const told = await topologyCommand(env, 'plan');
  expect(told.text).toContain("queue 'twinbox.a' is half migrated");

  const between = startMigration();
  await until(
    'the old one is gone or new',
    async () => (await ready(TEMPORARY)) !== undefined && !(await isOld()),
  );
  between.kill('SIGKILL');
  expect(await between.ended).toBe('SIGKILL');
  expect(await ready(TEMPORARY)).toBeGreaterThan(0);

  const back = startMigration();
  await until('some are back', async () => ((await ready(QUEUE)) ?? 0) > 500);
  back.kill('SIGKILL');
  expect(await back.ended).toBe('SIGKILL');
  expect(await ready(TEMPORARY)).toBeGreaterThan(0);

  expect(await migrate()).toMatchObject({ code: 0 });
  expect(await names()).toEqual([]);
  const taken = await drain(channel, QUEUE);
  // What a killed one held comes back to the queue behind others: order is kept only where nothing dies.
  expect(firsts(taken).sort()).toEqual([...ids].sort());
  expect(taken.length - ids.length).toBeLessThanOrEqual(3 * 200); // what a killed one held goes twice
});

async function isOld(): Promise<boolean> {
  const queues = (await management('GET', `queues/${vhost}?columns=name,arguments`)) as {
    name: string;
    arguments: Record<string, unknown>;
  }[];
  return queues.find(({ name }) => name === QUEUE)?.arguments['x-delivery-limit'] === 20;
}

test('what a relay publishes while the queue is made anew is there afterwards', async () => {
  const before = await oldMailbox(OLD.quorum, 2_000);
  await migrateOutbox(stores.env.DATABASE_URL);
  const pool = new pg.Pool({ connectionString: stores.env.DATABASE_URL, max: 2 });
  // A publish that crosses the deletion of its queue is never answered by RabbitMQ 3.10: it goes again.
  startProcess(process.execPath, ['dist/relay/main.js'], { ...env, RELAY_CONFIRM_TIMEOUT_MS: '1000' });
  const migrating = startMigration();
  let over = false;
  void migrating.ended.then(() => (over = true));
  while (!over) {
    await pool.query(`INSERT INTO outbox (type, body) VALUES ('order.placed', '')`);
    await pause(5); // slower than a queue can be moved, message by message
  }
  expect(await migrating.ended).toBe(0);
  await until(
    'all rows are published',
    async () => (await pool.query('SELECT FROM outbox WHERE published_at IS NULL LIMIT 1')).rowCount === 0,
    { ms: 20_000 },
  );
  const { rows } = await pool.query<{ id: string; attempts: number }>(
    'SELECT event_id::text AS id, attempts FROM outbox',
  );
  await pool.end();
  expect(rows.length).toBeGreaterThan(100);
  expect(rows.filter(({ attempts }) => attempts > 0)).toEqual([]); // at every moment something was bound
  const fresh = await model.createChannel();
  const ids = new Set((await drain(fresh, QUEUE)).map(({ id }) => id));
  await fresh.close();
  expect([...before, ...rows.map(({ id }) => id)].filter((id) => !ids.has(id))).toEqual([]);
  expect(await names()).toEqual([]);
});

test('a queue that is consumed is not made anew, nor by two at once', async () => {
  await oldMailbox(OLD.quorum, 1);
  const { consumerTag } = await channel.consume(QUEUE, () => undefined);
  const refused = await migrate();
  expect(refused).toMatchObject({ code: 1 });
  expect(refused.text).toContain('left: twinbox.a is consumed by 1: stop ingest first');
  expect(await names()).toEqual([]);
  await channel.cancel(consumerTag);
  await channel.recover();

  await channel.assertQueue(`${QUEUE}.migrating.lock`, { exclusive: true });
  expect(await migrate()).toMatchObject({
    code: 1,
    text: expect.stringContaining('another run migrates twinbox.a at this moment') as string,
  });
  expect(await isOld()).toBe(true);
  await channel.deleteQueue(`${QUEUE}.migrating.lock`);
});

test('messages that somebody holds unacked keep the old queue alive, where the management API shows them', async () => {
  await oldMailbox(OLD.quorum, 3);
  const holding = await model.createChannel();
  expect(await holding.get(QUEUE)).toMatchObject({ properties: { messageId: 'm-0' } });
  const kept = await migrate();
  expect(kept).toMatchObject({
    code: 1,
    // To RabbitMQ 3.10 one who holds a message counts as a consumer.
    text: expect.stringMatching(/still holds 1 messages that are unacked|is consumed by 1/) as string,
  });
  await holding.close();
  expect(await migrate()).toMatchObject({ code: 0 });
  expect(firsts(await drain(channel, QUEUE)).sort()).toEqual(['m-0', 'm-1', 'm-2']);
});
