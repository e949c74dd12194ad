import { randomUUID } from 'node:crypto';
import { connect as dial, type ChannelModel } from 'amqplib';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import {
  createConsumer,
  createPublisher,
  declareMailbox,
  EVENTS_EXCHANGE,
  mailboxQueue,
  openConnection,
  type BrokerConnection,
  type Consumer,
  type Delivery,
  type Outcome,
  type Publication,
  type Publisher,
  type Role,
} from '../../src/broker/index.js';
import { createLog } from '../../src/runtime/log.js';
import { startProxy, type Proxy } from '../support/proxy.js';
import { freshStores, management, type Stores } from '../support/stores.js';
import { until } from '../support/until.js';

let stores: Stores;
let vhost: string;
/** The test's own way to the broker, which no fault of a test touches. */
let direct: ChannelModel;
let ends: (() => Promise<unknown>)[] = [];
const log = createLog({ level: 'silent', process: 'test' });

beforeAll(async () => {
  stores = await freshStores();
  vhost = new URL(stores.env.RABBITMQ_URL).pathname.slice(1);
  direct = await dial(stores.env.RABBITMQ_URL);
  direct.on('error', () => undefined);
});
afterAll(async () => {
  await direct.close();
  await stores.drop();
});
afterEach(async () => {
  for (const end of ends.reverse()) await end();
  ends = [];
});

async function proxied(): Promise<{ proxy: Proxy; url: string }> {
  const url = new URL(stores.env.RABBITMQ_URL);
  const proxy = await startProxy({ host: url.hostname, port: Number(url.port) });
  ends.push(() => proxy.close());
  url.hostname = '127.0.0.1';
  url.port = String(proxy.port);
  return { proxy, url: url.href };
}

async function attach(roles: readonly Role<never>[], url: string): Promise<BrokerConnection> {
  const connection = openConnection({ url, name: 'test', log, roles });
  ends.push(() => connection.close());
  await until('attached', () => connection.fault() === undefined);
  return connection;
}

/** A mailbox that is bound for its own type. */
async function mailbox(): Promise<{ actor: string; type: string }> {
  const actor = `a${randomUUID().slice(0, 8)}`;
  const channel = await direct.createChannel();
  await declareMailbox(channel, actor, [`${actor}.*`]);
  await channel.close();
  return { actor, type: `${actor}.done` };
}

const publication = (routingKey: string, over: Partial<Publication> = {}): Publication => ({
  exchange: EVENTS_EXCHANGE,
  routingKey,
  body: Buffer.from('{}'),
  messageId: randomUUID(),
  options: {},
  ...over,
});

async function publisherOn(url = stores.env.RABBITMQ_URL, confirmTimeoutMs = 10_000): Promise<Publisher> {
  const publisher = createPublisher({ name: 'the publisher', confirmTimeoutMs });
  await attach([publisher.role], url);
  return publisher;
}

/** Ids of everything that stands in a mailbox, taken out of it. */
async function drain(actor: string): Promise<string[]> {
  const channel = await direct.createChannel();
  const ids: string[] = [];
  for (;;) {
    const message = await channel.get(mailboxQueue(actor), { noAck: true });
    if (message === false) break;
    ids.push(String(message.properties.messageId));
  }
  await channel.close();
  return ids;
}

test('confirmed, returned, refused, not sent', async () => {
  const { actor, type } = await mailbox();
  const publisher = createPublisher({ name: 'the publisher', confirmTimeoutMs: 10_000 });
  expect(publisher.ready()).toBe(false);
  expect(await publisher.publish(publication(type))).toEqual({ kind: 'not-sent' });

  await attach([publisher.role], stores.env.RABBITMQ_URL);
  const sent = publication(type);
  expect(await publisher.publish(sent)).toEqual({ kind: 'confirmed' });
  expect(await publisher.publish(publication('nobody.listens'))).toEqual({
    kind: 'returned',
    detail: '312 NO_ROUTE: no queue is bound for nobody.listens',
  });
  const tooLarge = publication(type, { options: { headers: { big: 'x'.repeat(70_000) } } });
  expect(await publisher.publish(tooLarge)).toMatchObject({
    kind: 'refused',
    detail: expect.stringContaining('headers') as string,
  });
  const [first, second] = [publisher.publish(sent), publisher.publish(sent)];
  expect(await second).toMatchObject({ kind: 'refused' });
  expect(await first).toEqual({ kind: 'confirmed' });
  expect(await drain(actor)).toEqual([sent.messageId, sent.messageId]);
});

test('what the broker closes the channel over says so, and the channel comes back', async () => {
  const { type } = await mailbox();
  const publisher = await publisherOn();
  const bad = await publisher.publish(publication(type, { options: { headers: { CC: 'x' } } }));
  expect(bad).toMatchObject({
    kind: 'unknown',
    closedWith: 406,
    detail: expect.stringContaining('PRECONDITION_FAILED') as string,
  });
  await until('a new channel', () => publisher.ready());
  expect(await publisher.publish(publication(type))).toEqual({ kind: 'confirmed' });
});

test('10,000 publishes, every tenth unroutable, 200 in flight: each outcome is its own', async () => {
  const { actor, type } = await mailbox();
  const publisher = await publisherOn();
  const outcomes: Outcome[] = [];
  const bodies = [Buffer.alloc(100), Buffer.alloc(300_000)];
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < 10_000) {
      const index = next++;
      const key = index % 10 === 3 ? 'nobody.listens' : type;
      // Large bodies among the small ones: what is stored late is confirmed late.
      outcomes[index] = await publisher.publish(
        publication(key, { body: bodies[index % 500 === 0 ? 1 : 0]!, messageId: `m-${index}` }),
      );
    }
  };
  await Promise.all(Array.from({ length: 200 }, lane));
  const wrong = outcomes.filter(({ kind }, index) => kind !== (index % 10 === 3 ? 'returned' : 'confirmed'));
  expect(outcomes).toHaveLength(10_000);
  expect(wrong).toEqual([]);
  expect(await drain(actor)).toHaveLength(9_000);
});

test('R-02 200 publishes whose confirms are held back, then a reset: 200 times unknown, within a second', async () => {
  const { actor, type } = await mailbox();
  const { proxy, url } = await proxied();
  const publisher = await publisherOn(url, 60_000);
  proxy.freeze('to-client');
  const outcomes = Array.from({ length: 200 }, () => publisher.publish(publication(type)));
  const channel = await direct.createChannel();
  await until('the broker has all', async () => {
    return (await channel.checkQueue(mailboxQueue(actor))).messageCount === 200;
  });
  const resetAt = performance.now();
  proxy.reset(); // with the confirms still held back
  proxy.heal();
  const kinds = (await Promise.all(outcomes)).map(({ kind }) => kind);
  expect(performance.now() - resetAt).toBeLessThan(1_000);
  expect(new Set(kinds)).toEqual(new Set(['unknown']));
  await until('a new channel', () => publisher.ready());
  expect(await publisher.publish(publication(type))).toEqual({ kind: 'confirmed' });
});

test('the late confirm of a publish that timed out says nothing about the next one of that id', async () => {
  const { type } = await mailbox();
  const { proxy, url } = await proxied();
  const publisher = await publisherOn(url, 300);
  const messageId = randomUUID();
  proxy.freeze('to-client');
  expect(await publisher.publish(publication(type, { messageId }))).toMatchObject({ kind: 'unknown' });
  const again = publisher.publish(publication('nobody.listens', { messageId }));
  proxy.heal();
  expect(await again).toMatchObject({ kind: 'returned' });
});

async function consume(
  actor: string,
  url = stores.env.RABBITMQ_URL,
): Promise<{ consumer: Consumer; connection: BrokerConnection; taken: Delivery[] }> {
  const taken: Delivery[] = [];
  const consumer = createConsumer({
    actor,
    subscribes: [`${actor}.*`],
    prefetch: 10,
    onDelivery: (delivery) => taken.push(delivery),
  });
  const connection = await attach([consumer.role], url);
  await until('consuming', () => consumer.attached());
  return { consumer, connection, taken };
}

async function argumentsOf(actor: string): Promise<unknown> {
  const queue = await management('GET', `queues/${vhost}/${mailboxQueue(actor)}`);
  return (queue as { arguments: unknown }).arguments;
}

const ARGUMENTS = (actor: string): object => ({
  'x-queue-type': 'quorum',
  'x-delivery-limit': 50,
  'x-dead-letter-exchange': 'twinbox.dlx',
  'x-dead-letter-routing-key': mailboxQueue(actor),
  'x-dead-letter-strategy': 'at-least-once',
  'x-overflow': 'reject-publish',
});

test('a mailbox, its dead letters and its exchange are declared durable, with every argument', async () => {
  const { actor } = await mailbox();
  expect(await argumentsOf(actor)).toEqual(ARGUMENTS(actor));
  expect(await management('GET', `queues/${vhost}/${mailboxQueue(actor)}.dlq`)).toMatchObject({
    durable: true,
    arguments: { 'x-queue-type': 'quorum', 'x-delivery-limit': 1_000_000 },
  });
  const exchange = await management('GET', `exchanges/${vhost}/${EVENTS_EXCHANGE}`);
  expect(exchange).toMatchObject({ type: 'topic', durable: true });
  expect(exchange).toHaveProperty('arguments', {}); // an alternate exchange would hide what nobody is bound for
});

test('a queue that is deleted under its consumer comes back the same, and is consumed', async () => {
  const { actor, type } = await mailbox();
  const { consumer, taken } = await consume(actor);
  const publisher = await publisherOn();
  await management('DELETE', `queues/${vhost}/${mailboxQueue(actor)}`);
  await until('the consumer knows', () => !consumer.attached());
  await until('it is back', () => consumer.attached());
  expect(await argumentsOf(actor)).toEqual(ARGUMENTS(actor));
  expect(await publisher.publish(publication(type))).toEqual({ kind: 'confirmed' });
  await until('a delivery', () => taken.length === 1);
  expect(taken[0]?.ack()).toBe(true);
});

test('after a reset deliveries resume; an ack of an earlier channel settles nothing on the new one', async () => {
  const { actor, type } = await mailbox();
  const { proxy, url } = await proxied();
  const { taken, connection } = await consume(actor, url);
  const publisher = await publisherOn();
  // What proves the head of the mailbox harmless goes first: from then on several are held.
  await publisher.publish(publication(type));
  await until('the first delivery', () => taken.length === 1);
  expect(taken[0]!.ack()).toBe(true);
  for (let sent = 0; sent < 3; sent += 1) await publisher.publish(publication(type));
  await until('three deliveries', () => taken.length === 4);

  const before = proxy.accepted;
  proxy.reset();
  await until('a redelivery', () => taken.length === 5);
  expect(proxy.accepted).toBeGreaterThan(before);
  for (const old of taken.slice(1, 4)) {
    expect(old.alive()).toBe(false);
    expect(old.ack()).toBe(false);
  }
  // One at a time now: any of them may be what the last consumer died of.
  for (let nth = 4; nth < 7; nth += 1) {
    const fresh = await until(`redelivery ${nth - 3}`, () => taken[nth]);
    expect(taken).toHaveLength(nth + 1);
    expect(fresh.fields.redelivered).toBe(true);
    expect(fresh.ack()).toBe(true);
    expect(fresh.ack()).toBe(false); // a second ack would close the channel
  }
  await connection.close(); // what was not settled would be ready again now
  expect(await drain(actor)).toEqual([]);
});

test('pause and resume in any order leave one consumer, or none', async () => {
  const { actor } = await mailbox();
  const { consumer } = await consume(actor);
  const channel = await direct.createChannel();
  const consumers = async (): Promise<number> =>
    (await channel.checkQueue(mailboxQueue(actor))).consumerCount;
  await consumer.pause();
  expect(await consumers()).toBe(0);
  await Promise.all([consumer.resume(), consumer.resume(), consumer.pause(), consumer.resume()]);
  await consumer.resume();
  expect(await consumers()).toBe(1);
  expect(consumer.attached()).toBe(true);
  await Promise.all([consumer.pause(), consumer.resume(), consumer.pause()]);
  expect(await consumers()).toBe(0);
  await channel.close();
});

test('a peer that accepts and stays silent is given up, and leaves no connection behind', async () => {
  const { proxy, url } = await proxied();
  proxy.freeze('both');
  const connection = openConnection({ url, name: 'test', log, roles: [] });
  ends.push(() => connection.close());
  await until('the second try', () => proxy.accepted >= 2, { ms: 15_000 });
  expect(connection.fault()).toMatch(/cannot be reached/);
  await until('one socket', () => proxy.open <= 1);
  proxy.heal();
  await until('connected', () => connection.fault() === undefined, { ms: 20_000 });
});

test('a connection that is frozen half-open can be closed, and is noticed without being closed', async () => {
  const { proxy, url } = await proxied();
  const publisher = createPublisher({ name: 'the publisher', confirmTimeoutMs: 60_000 });
  const address = new URL(url);
  address.searchParams.set('heartbeat', '1');
  const connection = openConnection({
    url: address.href,
    name: 'test',
    log,
    roles: [publisher.role],
  });
  ends.push(() => connection.close());
  await until('attached', () => connection.fault() === undefined);
  proxy.freeze('both');
  await until('noticed', () => !publisher.ready(), { ms: 15_000 });
  expect(connection.fault()).toBeDefined();
  proxy.heal();
  await until('attached again', () => connection.fault() === undefined, { ms: 20_000 });

  proxy.freeze('both');
  const began = performance.now();
  await connection.close();
  expect(performance.now() - began).toBeLessThan(6_000);
  await until('no socket', () => proxy.open === 0);
});
