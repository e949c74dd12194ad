import { gzipSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { finish, record } from '../../src/inbox/index.js';
import { freePort, openBench, through, type Bench } from '../support/actors/bench.js';
import { envelope, GOOD_BODY } from '../support/actors/envelopes.js';
import { killAll, type Running } from '../support/processes.js';
import { startProxy } from '../support/proxy.js';
import { until } from '../support/until.js';

let bench: Bench;

beforeAll(async () => {
  bench = await openBench();
});
afterEach(async () => {
  await killAll();
  await bench.purge();
});
afterAll(() => bench.close());

const ids = (prefix: string, count: number) =>
  Array.from({ length: count }, (_, index) => `${prefix}-${index}`);
const recorded = (prefix: string, actor = 'receipt') =>
  bench.inbox.documents(actor).countDocuments({ messageId: { $regex: `^${prefix}-` } });
const settled = (actor = 'receipt') =>
  until(`the mailbox of ${actor} is empty`, async () => (await bench.mailbox(actor)).ready === 0);
const up = async (...all: Running[]) => {
  for (const one of all) await one.line('process.started');
};
const proxyOf = (address: string) => startProxy({ host: '127.0.0.1', port: Number(new URL(address).port) });
const readyz = async (port: number) => (await fetch(`http://127.0.0.1:${port}/readyz`)).status;

test('I-13 each subscriber has its own document and its own effect, also when all is delivered again', async () => {
  const running = ['ingest', 'receipt', 'ledger'].map((type) => bench.start(type));
  await up(...running);
  const all = ids('i13', 100);
  for (let time = 0; time < 2; time += 1) for (const id of all) await bench.publish(id);
  for (const actor of ['receipt', 'ledger']) {
    const processed = { messageId: { $in: all }, processedAt: { $type: 'date' } } as const;
    await until(
      `all are processed by ${actor}`,
      async () => (await bench.inbox.documents(actor).countDocuments(processed)) === 100,
    );
    await settled(actor);
    expect(await recorded('i13', actor)).toBe(100);
    for (const id of all) expect(await bench.runs(id, actor)).toHaveLength(1);
    expect(await bench.letters(actor)).toEqual([]);
  }
  for (const { lines } of running) expect(lines.filter(({ level }) => level === 'error')).toEqual([]);
});

test('I-16 a second body under one id is a dead letter, and the same body again a duplicate', async () => {
  const ingest = bench.start('ingest');
  await up(ingest, bench.start('receipt'));
  const body = (totalCents: number) => ({ ...GOOD_BODY, totalCents });
  for (const cents of [1, 2, 1]) await bench.publish('same-1', body(cents));
  await bench.processed('same-1');
  const letters = await until('the letter', async () => {
    const found = await bench.letters();
    return found.length > 0 && found;
  });
  await settled();
  expect(letters).toHaveLength(1);
  expect(letters[0]).toMatchObject({ messageId: 'same-1', headers: { 'x-reason': 'conflict' } });
  expect(JSON.parse(letters[0]!.body.toString())).toMatchObject({ totalCents: 2 });
  expect(await bench.documents.countDocuments({ messageId: 'same-1' })).toBe(1);
  expect(JSON.parse((await bench.document('same-1'))!.body!.toString())).toMatchObject({ totalCents: 1 });
  expect(await bench.runs('same-1')).toHaveLength(1);
  expect(await bench.letters()).toEqual([]);
  await ingest.line('ingest.dead-letter');
  const told = ingest.lines.filter(({ level, actor }) => level === 'error' && actor === 'receipt');
  expect(told).toMatchObject([{ event: 'ingest.dead-letter', messageId: 'same-1', reason: 'conflict' }]);
});

test.each([0, 1, 4, 5])(
  'I-12 a batch of which %i are recorded already: all acked, a job where one may be missing',
  async (there) => {
    const all = ids(`i12_${there}`, 5);
    const old = all.slice(0, there);
    await record(
      bench.inbox,
      'receipt',
      old.map((id) => envelope(id)),
      60_000,
    );
    // Every second of them is done.
    const done = old.filter((_, index) => index % 2 === 1);
    await bench.documents.updateMany(
      { messageId: { $in: done } },
      { $set: { lease: { owner: 'x', since: new Date(), until: new Date() } } },
    );
    await finish(bench.inbox, 'receipt', done, 'x');
    for (const id of all) await bench.publish(id);
    await until('they wait in the mailbox', async () => (await bench.mailbox()).ready === 5);
    await up(bench.start('ingest'));
    await until('each has a document', async () => (await recorded(`i12_${there}`)) === 5);
    await settled();
    for (const id of all) {
      const sight = done.includes(id) ? 'absent' : 'waiting';
      await until(
        `the job of ${id} is ${sight}`,
        async () => (await bench.queues.sight('receipt', id, 1)) === sight,
      );
      await bench.queues.remove('receipt', id, 1);
    }
    expect(await bench.letters()).toEqual([]);
  },
);

test('I-14 with Redis away from the start on everything is recorded and acked, and runs when it is back', async () => {
  const proxy = await proxyOf(bench.env.REDIS_URL);
  proxy.cut();
  const port = await freePort();
  const ingest = bench.start('ingest', {
    REDIS_URL: through(bench.env.REDIS_URL, proxy.port),
    PORT: String(port),
  });
  await up(ingest);
  const all = ids('i14', 300);
  const began = Date.now();
  for (const id of all) await bench.publish(id);
  await until('all are recorded', async () => (await recorded('i14')) === 300);
  await settled();
  expect(Date.now() - began).toBeLessThan(10_000);
  expect(proxy.accepted).toBeGreaterThan(0);
  expect(proxy.open).toBe(0);
  expect(await bench.queues.sight('receipt', all[0]!, 1)).toBe('absent');
  expect(await readyz(port)).toBe(200);
  proxy.heal();
  await up(bench.start('receipt'), bench.start('sweeper'));
  await until(
    'all are processed',
    async () =>
      (await bench.documents.countDocuments({ messageId: { $in: all }, processedAt: { $type: 'date' } })) ===
      300,
    { ms: 20_000 },
  );
  for (const id of all) {
    expect(await bench.document(id)).toMatchObject({ starts: 1, failures: 0 });
    expect(await bench.runs(id)).toHaveLength(1);
  }
  expect(await ingest.stop()).toBe(0);
  await proxy.close();
});

test('with the inbox cut off it pauses, acks and dead-letters nothing, and resumes by itself', async () => {
  const proxy = await proxyOf(bench.env.MONGODB_URI);
  const port = await freePort();
  const ingest = bench.start('ingest', {
    MONGODB_URI: through(bench.env.MONGODB_URI, proxy.port),
    PORT: String(port),
  });
  await up(ingest);
  for (const id of ids('cut', 20)) await bench.publish(id);
  await until('the first are recorded', async () => (await recorded('cut')) === 20);
  for (let time = 1; time <= 2; time += 1) {
    proxy.cut();
    for (const id of ids(`away${time}`, 50)) await bench.publish(id);
    await until(
      'it pauses',
      () => ingest.lines.filter(({ event }) => event === 'ingest.paused').length === time,
      { ms: 30_000 },
    );
    expect(await readyz(port)).toBe(503);
    expect(await recorded(`away${time}`)).toBe(0);
    proxy.heal();
    await until('all are recorded', async () => (await recorded(`away${time}`)) === 50, { ms: 30_000 });
    await settled();
    await until('it is ready again', async () => (await readyz(port)) === 200);
  }
  expect(await bench.letters()).toEqual([]);
  expect(await ingest.stop()).toBe(0);
  await proxy.close();
}, 120_000);

describe('what cannot be recorded', () => {
  test('is a dead letter with its reason, bytes, headers, id and origin; its neighbours are processed', async () => {
    const bad: [string, string | undefined, Buffer, object][] = [
      ['no-id', undefined, Buffer.from('a'), {}],
      ['no-id', '', Buffer.from('b'), {}],
      ['no-id', '   ', Buffer.from('c'), {}],
      ['bad-id', 'not\uFFFDutf8', Buffer.from('d'), {}],
      ['too-large', 'large', Buffer.alloc(4_001, 'e'), {}],
      ['too-large', 'bomb', gzipSync(Buffer.alloc(1_000_000)), { contentEncoding: 'gzip' }],
      ['undecodable', 'no-gzip', Buffer.from('f'), { contentEncoding: 'gzip' }],
      ['undecodable', 'unknown-encoding', Buffer.from('g'), { contentEncoding: 'rot13' }],
    ];
    for (const [index, [, id, body, options]] of bad.entries()) {
      await bench.publish(id, body, {
        ...options,
        headers: { 'x-shop': `s-${index}` },
        expiration: '600000',
        correlationId: 'c',
      });
      await bench.publish(`beside-${index}`);
    }
    await until('all wait together', async () => (await bench.mailbox()).ready === 2 * bad.length);
    const ingest = bench.start('ingest', { MAX_BODY_BYTES: '4000' });
    await up(ingest, bench.start('receipt'));
    for (const index of bad.keys()) await bench.processed(`beside-${index}`);
    await until(
      'all are settled',
      () =>
        ingest.lines.filter(({ event, actor }) => event === 'ingest.dead-letter' && actor === 'receipt')
          .length === bad.length,
    );
    const letters = await bench.letters();
    const byHeader = new Map(letters.map((letter) => [letter.headers['x-shop'], letter]));
    expect(letters).toHaveLength(bad.length);
    for (const [index, [reason, id, body]] of bad.entries()) {
      const letter = byHeader.get(`s-${index}`)!;
      expect(letter.headers).toMatchObject({
        'x-reason': reason,
        'x-original-exchange': 'twinbox.events',
        'x-original-routing-key': 'order.placed',
      });
      expect(letter.headers['x-detail']).toMatch(/\w+ \w+/);
      expect(letter.body).toEqual(body);
      expect(letter.messageId ?? '').toBe(id ?? '');
    }
    await settled();
    expect(
      await bench.documents.countDocuments({
        messageId: { $in: ['large', 'bomb', 'no-gzip', 'unknown-encoding', '', '   '] },
      }),
    ).toBe(0);
    await bench.letters('ledger');
  });

  test('is buried again, under the same id, by the one who comes after a kill between letter and ack', async () => {
    const probed = bench.startProbed('ingest', 'ingest.deadlettered');
    await up(probed);
    await bench.publish(undefined, Buffer.from('x'), { headers: { 'x-shop': 'killed' } });
    expect(await probed.ended).toBe('SIGKILL');
    await up(bench.start('ingest'));
    await settled();
    const letters = await until('the letters', async () => {
      const found = await bench.letters();
      return found.length > 0 && found;
    });
    expect(
      letters.every(({ headers }) => headers['x-reason'] === 'no-id' && headers['x-shop'] === 'killed'),
    ).toBe(true);
  });
});

describe('killed with -9', () => {
  test('between stored and acked: delivered again, one document, a job', async () => {
    const probed = bench.startProbed('ingest', 'ingest.stored', {
      TWINBOX_PROCESSORS: 'test/support/actors/receipt-alone.ts',
    });
    await up(probed);
    await bench.publish('killed-stored');
    expect(await probed.ended).toBe('SIGKILL');
    expect(await bench.document('killed-stored')).not.toBeNull();
    expect(await bench.queues.sight('receipt', 'killed-stored', 1)).toBe('absent');
    await until('the broker has it back', async () => (await bench.mailbox()).ready === 1);
    await up(bench.start('ingest'));
    await until(
      'its job',
      async () => (await bench.queues.sight('receipt', 'killed-stored', 1)) === 'waiting',
    );
    await settled();
    expect(await bench.documents.countDocuments({ messageId: 'killed-stored' })).toBe(1);
  });

  test('between acked and enqueued: the sweeper makes the job', async () => {
    const probed = bench.startProbed('ingest', 'ingest.acked', {
      TWINBOX_PROCESSORS: 'test/support/actors/receipt-alone.ts',
    });
    await up(probed);
    await bench.publish('killed-acked');
    expect(await probed.ended).toBe('SIGKILL');
    expect(await bench.document('killed-acked')).not.toBeNull();
    expect(await bench.queues.sight('receipt', 'killed-acked', 1)).toBe('absent');
    await up(bench.start('sweeper'));
    await until(
      'its job',
      async () => (await bench.queues.sight('receipt', 'killed-acked', 1)) === 'waiting',
    );
  });
});

test('an actor whose file does not load keeps its mailbox, and its messages are recorded', async () => {
  const ingest = bench.start('ingest', { FRAGILE_BREAKS: 'yes' });
  await up(ingest);
  await ingest.line('ingest.actor.unloadable');
  await bench.publish('unloadable', GOOD_BODY, { type: 'order.fragile' });
  await until('it is recorded', () =>
    bench.document('unloadable', 'fragile').then((found) => found ?? undefined),
  );
  await settled('fragile');
});
