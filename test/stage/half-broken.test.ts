import { connect } from 'amqplib';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { deadLetterQueue, mailboxQueue } from '../../src/broker/index.js';
import { freePort, openBench, through, type Bench } from '../support/actors/bench.js';
import { killAll } from '../support/processes.js';
import { startProxy, type Proxy } from '../support/proxy.js';
import { startRefusingMongo } from '../support/refusing-mongo.js';
import { until } from '../support/until.js';

/** Faults in which something still answers: what is half broken is noticed late, or never. */
let bench: Bench;
const proxies: Proxy[] = [];

beforeAll(async () => {
  bench = await openBench();
});
afterAll(() => bench.close());
beforeEach(() => bench.purge());
afterEach(async () => {
  await killAll();
  for (const proxy of proxies.splice(0)) await proxy.close();
});

const targetOf = (url: string): { host: string; port: number } => ({
  host: '127.0.0.1',
  port: Number(new URL(url).port),
});

async function proxyOf(url: string): Promise<{ proxy: Proxy; url: string }> {
  const proxy = await startProxy(targetOf(url));
  proxies.push(proxy);
  return { proxy, url: through(url, proxy.port) };
}

test('an inbox that answers but takes no inserts costs no message a delivery: none is dead-lettered, all are recorded after', async () => {
  let refusing = true;
  const mongo = await startRefusingMongo(targetOf(bench.env.MONGODB_URI), () => refusing);
  const ingest = bench.start('ingest', { MONGODB_URI: through(bench.env.MONGODB_URI, mongo.port) });
  await ingest.line('process.started');
  const ids = Array.from({ length: 20 }, (_, n) => `quota-${n}`);
  for (const id of ids) await bench.publish(id);
  const began = Date.now();
  // Ten seconds were enough for the broker to give all of them up, when each refusal gave them back.
  await until('twelve seconds of refusals', () => mongo.refused > 20 && Date.now() - began > 12_000, {
    ms: 30_000,
  });
  expect(await bench.documents.countDocuments({ messageId: { $in: ids } })).toBe(0);
  refusing = false;
  await until(
    'all are recorded',
    async () => (await bench.documents.countDocuments({ messageId: { $in: ids } })) === 20,
    { ms: 40_000 },
  );
  expect(await bench.letters()).toEqual([]);
  expect(await ingest.stop()).toBe(0);
  await mongo.close();
}, 120_000);

test('a dead letter that nobody takes is not taken for one that is, whatever letters of others are in flight', async () => {
  const ingest = bench.start('ingest');
  await ingest.line('process.started');
  for (let n = 0; n < 20; n += 1) await bench.publish(`letter-of-${n}`);
  await until(
    'all are recorded',
    async () => (await bench.documents.countDocuments({ messageId: /^letter-of-/ })) === 20,
  );
  const model = await connect(bench.env.RABBITMQ_URL);
  const channel = await model.createChannel();
  await channel.deleteQueue(deadLetterQueue('receipt'));
  // Conflicts of both actors, which have the same ids: those of ledger have their queue, those of receipt none.
  for (let n = 0; n < 200; n += 1) await bench.publish(`letter-of-${n % 20}`, { other: n });
  const buried = (actor: string): number =>
    ingest.lines.filter((line) => line.event === 'ingest.dead-letter' && line.actor === actor).length;
  await until('the other actor has all its letters', () => buried('ledger') >= 200, { ms: 30_000 });
  await ingest.line('ingest.dead-letter.failed');
  expect(buried('receipt')).toBe(0);
  ingest.kill('SIGKILL');
  await ingest.ended;
  await until(
    'every one of them is in the mailbox still',
    async () => (await channel.checkQueue(mailboxQueue('receipt'))).messageCount === 200,
  );
  await model.close();
  // With the queue there again each has its letter.
  bench.start('ingest');
  let letters = 0; // a look takes them away
  await until(
    'all have their letters',
    async () => {
      letters += (await bench.letters()).length;
      return letters === 200;
    },
    { ms: 30_000 },
  );
}, 120_000);

test('connections to Redis that fall silent are given up: the worker, the sweeper and ingest go on over new ones', async () => {
  const { proxy, url } = await proxyOf(bench.env.REDIS_URL);
  const [ingest, receipt] = [
    bench.start('ingest', { REDIS_URL: url }),
    bench.start('receipt', { REDIS_URL: url }),
  ];
  bench.start('sweeper', { REDIS_URL: url });
  await ingest.line('process.started');
  await receipt.line('process.started');
  await bench.publish('silent-0');
  await bench.processed('silent-0');
  proxy.strand();
  const before = proxy.accepted;
  for (let n = 1; n <= 5; n += 1) await bench.publish(`silent-${n}`);
  for (let n = 1; n <= 5; n += 1) await bench.processed(`silent-${n}`, 60_000);
  expect(proxy.accepted).toBeGreaterThan(before);
}, 120_000);

test('an idle processor stops in time while Redis is away', async () => {
  const { proxy, url } = await proxyOf(bench.env.REDIS_URL);
  const receipt = bench.start('receipt', { REDIS_URL: url });
  await receipt.line('process.started');
  proxy.cut();
  await receipt.line('redis.error');
  expect(await receipt.stop()).toBe(0);
});

test.each(['ingest', 'receipt', 'sweeper'])(
  '%s stops at once while it waits for an inbox that it has never reached',
  async (type) => {
    const { proxy, url } = await proxyOf(bench.env.MONGODB_URI);
    proxy.cut();
    const running = bench.start(type, { MONGODB_URI: url });
    await running.line('inbox.unreachable');
    const began = Date.now();
    expect(await running.stop()).toBe(0);
    expect(Date.now() - began).toBeLessThan(3_000);
  },
);

test('ingest stops in time while its broker is half-open', async () => {
  const { proxy, url } = await proxyOf(bench.env.RABBITMQ_URL);
  const ingest = bench.start('ingest', { RABBITMQ_URL: `${url}?heartbeat=60` });
  await ingest.line('process.started');
  await until('it consumes', async () => (await bench.mailbox()).consumers === 1);
  proxy.freeze();
  expect(await ingest.stop()).toBe(0);
});

test('an effect that neither heeds its limit nor ends costs its process a restart, not its message', async () => {
  await bench.plan('deaf-1', 'deaf', 'ok');
  await bench.accept('deaf-1');
  const first = bench.start('receipt', { RECEIPT_TIMEOUT_MS: '300', PORT: String(await freePort()) });
  await first.line('run.failed');
  await first.line('run.unsettled');
  expect(await first.ended).toBe(1);
  bench.start('receipt', { RECEIPT_TIMEOUT_MS: '300' });
  expect(await bench.processed('deaf-1', 30_000)).toMatchObject({ failures: 1, starts: 2 });
}, 90_000);
