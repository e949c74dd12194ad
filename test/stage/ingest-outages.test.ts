import { connect } from 'amqplib';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { deadLetterQueue, declareMailbox, EVENTS_EXCHANGE, mailboxQueue } from '../../src/broker/index.js';
import { migrateOutbox } from '../../src/outbox/index.js';
import { pause } from '../../src/runtime/loop.js';
import { openStack } from '../../stack/index.js';
import { choosePorts } from '../../stack/ports.js';
import { rabbitmq } from '../../stack/rabbitmq.js';
import { freePort, openBench, through, type Bench } from '../support/actors/bench.js';
import { GOOD_BODY } from '../support/actors/envelopes.js';
import { brokerNode, brokerPrograms } from '../support/broker-node.js';
import { killAll, startType, type Running } from '../support/processes.js';
import { startProxy } from '../support/proxy.js';
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

const readyz = (port: number) => fetch(`http://127.0.0.1:${port}/readyz`).then(({ status }) => status);
const vhost = () => new URL(bench.env.RABBITMQ_URL).pathname.slice(1);

/** Stops MongoDB whole, and sees that it has stopped. */
async function frozen(ms: number): Promise<void> {
  await stack.pause('mongodb');
  expect((await stack.status()).find(({ service }) => service === 'mongodb')?.state).toBe('paused');
  await pause(ms);
  await stack.resume('mongodb');
}

/** Publishes at an even pace until it is stopped. */
function publishing(perSecond: number, publish: (nth: number) => Promise<void>): { stop(): Promise<number> } {
  let [stopped, sent] = [false, 0];
  const work = (async () => {
    const began = performance.now();
    for (; !stopped; sent += 1) {
      await publish(sent);
      await pause(Math.max(0, began + (sent * 1_000) / perSecond - performance.now()));
    }
  })();
  return {
    stop: async () => {
      stopped = true;
      await work;
      return sent;
    },
  };
}

test('I-01 MongoDB stops for 1 s, for 30 s and 25 times in a row: every id once, no letter, no restart', async () => {
  // Not scaled down: a lease that ends while the server stands still would be another case.
  const env = { LEASE_MS: '60000', SWEEP_MIN_AGE_MS: '2000', RECEIPT_TIMEOUT_MS: '60000' };
  const running = ['ingest', 'receipt', 'sweeper'].map((type) => bench.start(type, env));
  for (const one of running) await one.line('process.started');
  const publish = (prefix: string) => (nth: number) => bench.publish(`i01-${prefix}-${nth}`);
  const source = publishing(100, publish('many'));
  await until('some are processed', async () => (await bench.documents.countDocuments({})) > 100);
  await frozen(1_000);
  const long = frozen(30_000);
  await pause(8_000);
  const many = await source.stop();
  // Fewer from here on, so that each pause meets some.
  const trickle = publishing(20, publish('few'));
  await long;
  for (let time = 0; time < 25; time += 1) await frozen(1_000);
  const sent = many + (await trickle.stop());
  const settledWithin = { ms: 15_000, everyMs: 200 };
  await until('the mailbox is empty', async () => (await bench.mailbox()).ready === 0, settledWithin);
  await until(
    'all are recorded',
    async () => (await bench.documents.countDocuments({ messageId: { $regex: '^i01-' } })) === sent,
    settledWithin,
  );
  await until(
    'all are processed',
    async () =>
      (await bench.documents.countDocuments({
        messageId: { $regex: '^i01-' },
        processedAt: { $type: 'date' },
      })) === sent,
    { ms: 60_000, everyMs: 200 },
  );
  expect(many).toBeGreaterThan(800);
  expect(sent - many).toBeGreaterThan(300);
  const runs = await bench.inbox.db
    .collection('test_runs')
    .aggregate<{ _id: number; ids: number }>([
      { $match: { actor: 'receipt', messageId: { $regex: '^i01-' }, ended: true } },
      { $group: { _id: '$messageId', ends: { $sum: 1 } } },
      { $group: { _id: '$ends', ids: { $sum: 1 } } },
    ])
    .toArray();
  expect(runs).toEqual([{ _id: 1, ids: sent }]);
  expect(await bench.letters()).toEqual([]);
  for (const one of running) expect(await one.stop()).toBe(0);
}, 240_000);

test("I-02 MongoDB hangs for longer than the broker's ack timeout: the mailbox is consumed again, nothing is acked twice", async () => {
  const node = await brokerNode({
    root: join(import.meta.dirname, '..', '..', '.stack'),
    name: 'ack-timeout-broker',
    ports: await choosePorts(rabbitmq.portNames, {}, new Set()),
    programs: await brokerPrograms(),
    settings: ['consumer_timeout = 60000'],
  });
  try {
    await node.start();
    const limit = await node.tool('rabbitmqctl', ['eval', 'application:get_env(rabbit, consumer_timeout).']);
    expect(limit).toContain('60000');
    const model = await connect(node.url);
    const channel = await model.createConfirmChannel();
    await declareMailbox(channel, 'receipt', ['order.placed']);
    const publish = async (messageId: string): Promise<void> => {
      const body = Buffer.from(JSON.stringify(GOOD_BODY));
      channel.publish(EVENTS_EXCHANGE, 'order.placed', body, { messageId, type: 'order.placed' });
      await channel.waitForConfirms();
    };
    const ingest = bench.start('ingest', { RABBITMQ_URL: node.url });
    await ingest.line('process.started');
    await publish('i02-first');
    await until('the first is recorded', async () => (await bench.document('i02-first')) ?? undefined);
    const all = Array.from({ length: 10 }, (_, nth) => `i02-${nth}`);
    const holding = frozen(150_000);
    await until(
      'MongoDB has stopped',
      async () => (await stack.status()).find(({ service }) => service === 'mongodb')?.state === 'paused',
    );
    for (const id of all) await publish(id);
    await holding;
    await until(
      'the mailbox has its consumer',
      async () => (await channel.checkQueue(mailboxQueue('receipt'))).consumerCount === 1,
      { ms: 15_000 },
    );
    await until(
      'all are recorded',
      async () => (await bench.documents.countDocuments({ messageId: { $in: all } })) === 10,
      { ms: 15_000 },
    );
    expect((await channel.checkQueue(deadLetterQueue('receipt'))).messageCount).toBe(0);
    const said = node.log();
    expect(said).toContain('accepting AMQP connection');
    expect(said).not.toContain('unknown delivery tag');
    expect(await ingest.stop()).toBe(0);
    await model.close();
  } finally {
    await node.remove();
  }
}, 300_000);

test('I-08 the queue is deleted under the consumer: it is back with its arguments and bindings, and what was returned arrives', async () => {
  await migrateOutbox(bench.env.DATABASE_URL);
  const pool = new pg.Pool({ connectionString: bench.env.DATABASE_URL });
  const model = await connect(bench.env.RABBITMQ_URL);
  model.on('error', () => undefined);
  try {
    const port = await freePort();
    const channel = await model.createChannel();
    // Alone: what another queue took was routed, and is returned to nobody.
    await channel.deleteQueue(mailboxQueue('ledger'));
    const relay = startType('relay', [], { ...bench.env, RELAY_BACKOFF_FIRST_MS: '300' });
    const alone = { TWINBOX_PROCESSORS: 'test/support/actors/receipt-alone.ts' };
    const ingest = bench.start('ingest', { PORT: String(port), ...alone });
    await relay.line('relay.slots');
    await ingest.line('process.started');
    const queue = mailboxQueue('receipt');
    const described = async () => {
      const [{ arguments: given }, bindings] = (await Promise.all([
        management('GET', `queues/${vhost()}/${queue}`),
        management('GET', `queues/${vhost()}/${queue}/bindings`),
      ])) as [{ arguments: object }, { source: string; routing_key: string }[]];
      return {
        given,
        bindings: bindings.map(({ source, routing_key }) => `${source} ${routing_key}`).sort(),
      };
    };
    const before = await described();
    const source = publishing(100, async () => {
      await pool.query(`SELECT outbox_write('order.placed', $1)`, [JSON.stringify(GOOD_BODY)]);
    });
    await until('some are recorded', async () => (await bench.documents.countDocuments({})) > 100);
    const clock = async () =>
      (await pool.query<{ at: Date }>('SELECT clock_timestamp() AS at')).rows[0]!.at.getTime();

    const from = await clock();
    // Held still for a moment: it mends the queue faster than an event comes.
    ingest.kill('SIGSTOP');
    await channel.deleteQueue(queue);
    await until(
      'a row is returned',
      async () => ((await pool.query('SELECT FROM outbox WHERE attempts > 0')).rowCount ?? 0) > 0,
    );
    ingest.kill('SIGCONT');
    await until('ingest is not ready', async () => (await readyz(port)) === 503, { everyMs: 1 });
    await until(
      'the queue has its consumer',
      async () =>
        await model.createChannel().then(async (open) => {
          open.on('error', () => undefined);
          return open.checkQueue(queue).then(
            ({ consumerCount }) => consumerCount === 1,
            () => false,
          );
        }),
      { ms: 10_000 },
    );
    const to = await clock();
    expect(await described()).toEqual(before);
    await until('ingest is ready', async () => (await readyz(port)) === 200);
    const sent = await source.stop();

    const { rows: returned } = await pool.query<{ id: string }>(
      `SELECT event_id::text AS id FROM outbox WHERE attempts > 0`,
    );
    expect(returned.length).toBeGreaterThan(0);
    await until(
      'every row is published',
      async () => (await pool.query('SELECT FROM outbox WHERE published_at IS NULL')).rowCount === 0,
    );
    await until('the mailbox is empty', async () => (await bench.mailbox()).ready === 0);
    await until(
      'what was returned is recorded',
      async () =>
        (await bench.documents.countDocuments({ messageId: { $in: returned.map(({ id }) => id) } })) ===
        returned.length,
    );
    // Missing is at most what lay in the queue when it was deleted, or was on its way into it.
    const { rows } = await pool.query<{ id: string; at: Date }>(
      'SELECT event_id::text AS id, published_at AS at FROM outbox',
    );
    expect(rows).toHaveLength(sent);
    const there = new Set(
      (await bench.documents.find({}).project<{ messageId: string }>({ messageId: 1 }).toArray()).map(
        ({ messageId }) => messageId,
      ),
    );
    for (const { at } of rows.filter(({ id }) => !there.has(id))) {
      expect(at.getTime()).toBeGreaterThan(from - 1_000);
      expect(at.getTime()).toBeLessThan(to);
    }
    expect(await ingest.stop()).toBe(0);
    expect(await relay.stop()).toBe(0);
  } finally {
    await declareMailbox(await model.createChannel(), 'ledger', ['order.placed']);
    await model.close();
    await pool.end();
  }
}, 90_000);

test('I-09 a broker that accepts and says nothing for 60 s: each try ends, no socket piles up, then all is consumed', async () => {
  const proxy = await startProxy({
    host: '127.0.0.1',
    port: Number(new URL(bench.env.RABBITMQ_URL).port),
  });
  proxy.freeze();
  const ingest: Running = bench.start('ingest', {
    RABBITMQ_URL: through(bench.env.RABBITMQ_URL, proxy.port),
  });
  await ingest.line('process.started');
  let most = 0;
  const end = performance.now() + 60_000;
  await until(
    '60 s are over',
    () => {
      most = Math.max(most, proxy.open);
      return performance.now() > end;
    },
    { ms: 70_000 },
  );
  // One connection consumes, the other publishes dead letters.
  expect(most).toBe(2);
  expect(proxy.accepted).toBeGreaterThan(6);
  const failed = ingest.lines.filter(({ event }) => event === 'broker.unreachable');
  expect(failed.length).toBeGreaterThan(4);
  for (const { msg } of failed) expect(msg).toContain('timed out');
  proxy.heal();
  for (const actor of ['receipt', 'ledger'])
    await until(`${actor} has a consumer`, async () => (await bench.mailbox(actor)).consumers === 1, {
      ms: 15_000,
    });
  await bench.publish('i09');
  await until('it is recorded', async () => (await bench.document('i09')) ?? undefined);
  expect(await ingest.stop()).toBe(0);
  await proxy.close();
}, 120_000);
