import { connect, type ConfirmChannel } from 'amqplib';
import { readFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { EVENTS_EXCHANGE } from '../../src/broker/index.js';
import type { InboxDocument } from '../../src/inbox/index.js';
import { jobId } from '../../src/queue/job.js';
import { openBench, type Bench, type Letter } from '../support/actors/bench.js';
import { GOOD, inputsOf, type Input } from '../support/inputs.js';
import { killAll, type Running } from '../support/processes.js';
import { publishRaw } from '../support/raw-amqp.js';
import { until } from '../support/until.js';

let bench: Bench;
let channel: ConfirmChannel;
let closeChannel: () => Promise<void>;
let ingest: Running;
let receipt: Running;
let controls = 0;

beforeAll(async () => {
  bench = await openBench();
  const model = await connect(bench.env.RABBITMQ_URL);
  channel = await model.createConfirmChannel();
  closeChannel = () => model.close();
});
beforeEach(async () => {
  await bench.documents.deleteMany({});
  await bench.inbox.db.collection('test_runs').deleteMany({});
  [ingest, receipt] = [bench.start('ingest'), bench.start('receipt')];
  for (const one of [ingest, receipt]) await one.line('process.started');
});
afterEach(async () => {
  await killAll();
  await bench.purge();
});
afterAll(async () => {
  await closeChannel();
  await bench.close();
});

async function publish({ properties, rawId, body, times }: Input): Promise<void> {
  for (let time = 0; time < times; time += 1) {
    if (rawId === undefined) {
      channel.publish(EVENTS_EXCHANGE, 'order.placed', body, { persistent: true, ...properties });
      await channel.waitForConfirms();
    } else
      await publishRaw(bench.env.RABBITMQ_URL, {
        exchange: EVENTS_EXCHANGE,
        routingKey: 'order.placed',
        table: Buffer.alloc(0),
        messageId: rawId,
        type: 'order.placed',
        body,
      });
  }
}

/** A good message behind all of them: when it is processed, each of them has had its turn. */
async function control(ms: number): Promise<void> {
  // An id of its own each time: a job that has ended keeps its id.
  controls += 1;
  await bench.publish(`control ${controls}`);
  await bench.processed(`control ${controls}`, ms);
  await until('the mailbox is empty', async () => (await bench.mailbox()).ready === 0);
}

const documentOf = (messageId: string) =>
  until(
    `the document of ${JSON.stringify(messageId)}`,
    async () => (await bench.document(messageId)) ?? undefined,
  );
const ended = (messageId: string) =>
  until(`the end of ${JSON.stringify(messageId)}`, async () => {
    const found = await bench.document(messageId);
    return found !== null && (found.processedAt ?? found.deadAt) instanceof Date && found;
  });
const effects = async (messageId: string) =>
  (await bench.runs(messageId)).filter(({ ended: toItsEnd }) => toItsEnd === true).length;
const reasons = (letters: readonly Letter[]) =>
  letters.map(({ messageId, headers }) => [messageId, headers['x-reason']]);

test('I-03 every id: a document, a job and an effect of its own, or a dead letter with its reason', async () => {
  const inputs = inputsOf('message-ids');
  for (const input of inputs) await publish(input);
  await control(10_000);
  for (const { case: name, properties, expect: wanted } of inputs) {
    if (wanted.in === 'dlq') continue;
    const { messageId } = properties as { messageId: string };
    expect(await ended(messageId), name).toMatchObject({ processedAt: expect.any(Date) as Date });
    expect(await bench.documents.countDocuments({ messageId }), name).toBe(wanted.documents);
    expect(await effects(messageId), name).toBe(1);
    expect(jobId(messageId, 1), name).toBe(wanted.jobId);
    expect(await bench.queues.sight('receipt', messageId, 1), name).toBe('completed');
  }
  const wanted = inputs
    .filter(({ expect: { in: where } }) => where === 'dlq')
    .map(({ expect: { reason } }) => reason);
  const letters = await bench.letters();
  expect(letters.map(({ headers }) => headers['x-reason']).sort()).toEqual(wanted.sort());
  const known = inputs
    .filter(({ expect: { in: where } }) => where !== 'dlq')
    .map(({ properties }) => properties.messageId);
  expect(await bench.documents.countDocuments({})).toBe(new Set(known).size + 1);
}, 120_000);

test('I-04 I-05 every body: processed, dead after one start, or a dead letter; the message after it is processed', async () => {
  const rssMb = () =>
    Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${ingest.pid}/status`, 'utf8'))![1]) / 1_024;
  const letters: Letter[] = [];
  for (const input of inputsOf('poison-bodies')) {
    const { case: name, expect: wanted } = input;
    const before = rssMb();
    await publish(input);
    // In order: what comes behind a poisoned message is not held up by it.
    const next = `after ${name}`;
    await bench.publish(next);
    await bench.processed(next, 5_000);
    if (wanted.in === 'dlq') {
      const letter = await until(`the letter of ${name}`, async () => {
        letters.push(...(await bench.letters()));
        return letters.find(
          ({ headers, messageId }) => headers['x-reason'] === wanted.reason && (messageId ?? name) === name,
        );
      });
      if (typeof wanted.detail === 'string')
        expect(letter.headers['x-detail'], name).toContain(wanted.detail);
      expect(await bench.documents.countDocuments({ messageId: name }), name).toBe(0);
      letters.length = 0;
    } else {
      const document = await ended(name);
      if (wanted.in === 'dead')
        expect(document, name).toMatchObject({ deadReason: wanted.reason, starts: wanted.starts });
      else expect(document.processedAt, name).toBeInstanceOf(Date);
      expect(await effects(name), name).toBe(wanted.effectRuns);
    }
    if (name.startsWith('bomb')) expect(rssMb() - before).toBeLessThan(64);
  }
  await control(5_000);
  expect(await bench.letters()).toEqual([]);
  expect(await ingest.stop()).toBe(0);
  expect(await receipt.stop()).toBe(0);
}, 180_000);

test('I-06 every header table that a client can send: processed once, with no more kept than is on the list', async () => {
  const inputs = inputsOf('headers').filter(({ entry }) => entry.rawFrames === undefined);
  for (const input of inputs) await publish(input);
  await control(10_000);
  for (const { case: name, expect: wanted } of inputs) {
    const document = await ended(name);
    expect(document.processedAt, name).toBeInstanceOf(Date);
    expect(await effects(name), name).toBe(1);
    expect(await bench.documents.countDocuments({ messageId: name }), name).toBe(wanted.documents);
    if (wanted.key === null) expect(document, name).not.toHaveProperty('key');
    expect(document, name).not.toHaveProperty('traceparent');
    for (const [header, value] of Object.entries(document.headers)) {
      expect(['string', 'number', 'boolean'], `${name}: ${header}`).toContain(typeof value);
      expect(header, name).not.toMatch(/^\$|\0|^x-(death|delivery-count)/);
      expect(Buffer.byteLength(header) + Buffer.byteLength(String(value)), name).toBeLessThanOrEqual(1_024);
    }
  }
  for (const { lines } of [ingest, receipt])
    expect(lines.filter(({ level }) => level === 'error')).toEqual([]);
}, 60_000);

test("I-07 what other producers send: the format, its id, type and time; the effect gets the format's payload", async () => {
  const inputs = inputsOf('producer-formats');
  const there = new Map<string, InboxDocument>();
  let seen = new Set<string>();
  const letters: Letter[] = [];
  for (const input of inputs) {
    const { case: name, expect: wanted } = input;
    await publish(input);
    await bench.publish(`after ${name}`);
    await documentOf(`after ${name}`);
    const all = (await bench.documents.find({}).toArray()).filter(
      ({ messageId }) => !messageId.startsWith('after '),
    );
    const fresh = all.filter(({ messageId }) => !seen.has(messageId));
    seen = new Set(all.map(({ messageId }) => messageId));
    if (wanted.in === 'dlq') {
      expect(fresh, name).toEqual([]);
      const [letter] = await until(`the letter of ${name}`, async () => {
        const found = await bench.letters();
        return found.length > 0 && found;
      });
      letters.push(letter!);
      expect(letter!.headers['x-reason'], name).toBe(wanted.reason);
      if (typeof wanted.detail === 'string')
        expect(letter!.headers['x-detail'], name).toContain(wanted.detail);
    } else if (wanted.sameDocumentAs !== undefined) {
      expect(fresh, name).toEqual([]);
      expect(there.has(wanted.sameDocumentAs as string), name).toBe(true);
    } else {
      expect(fresh, name).toHaveLength(1);
      const document = fresh[0]!;
      there.set(name, document);
      if (wanted.format !== undefined) expect(document.source.format, name).toBe(wanted.format);
      if (wanted.idSource !== undefined) expect(document.source.idSource, name).toBe(wanted.idSource);
      if (wanted.messageId !== undefined) expect(document.messageId, name).toBe(wanted.messageId);
      if (wanted.type !== undefined) expect(document.type, name).toBe(wanted.type);
      if (wanted.createdAt !== undefined)
        expect(document.createdAt?.toISOString(), name).toBe(wanted.createdAt);
      const end = await ended(document.messageId);
      // The schema of receipt takes the order and nothing else: who is processed was given the order.
      const takes = wanted.effectGets !== undefined;
      if (takes) expect(end.processedAt, `${name}: ${end.lastError?.message ?? ''}`).toBeInstanceOf(Date);
      if (wanted.in === 'dead') {
        expect(end, name).toMatchObject({ deadReason: wanted.reason });
        expect(await effects(document.messageId), name).toBe(wanted.effectRuns);
      }
    }
  }
  expect(letters).toHaveLength(inputs.filter(({ expect: { in: where } }) => where === 'dlq').length);
  expect(reasons(await bench.letters())).toEqual([]);
}, 120_000);

test('a batch is one delivery: each event is a message, and all are processed', async () => {
  const event = (id: string) => ({
    specversion: '1.0',
    id,
    source: '/shop',
    type: 'order.placed',
    data: GOOD,
  });
  const send = async (...events: object[]): Promise<void> => {
    channel.publish(EVENTS_EXCHANGE, 'order.placed', Buffer.from(JSON.stringify(events)), {
      persistent: true,
      contentType: 'application/cloudevents-batch+json',
    });
    await channel.waitForConfirms();
  };
  const idOf = (id: string) => JSON.stringify(['/shop', id]);
  await send(event('b-1'), event('b-2'), event('b-3'));
  for (const id of ['b-1', 'b-2', 'b-3']) expect((await ended(idOf(id))).processedAt).toBeInstanceOf(Date);
  // One of it again with another body: the batch is a dead letter, the new one of it is recorded all the same.
  await send({ ...event('b-1'), data: { ...GOOD, totalCents: 1 } }, event('b-4'));
  expect((await ended(idOf('b-4'))).processedAt).toBeInstanceOf(Date);
  const [letter] = await until('the letter', async () => {
    const found = await bench.letters();
    return found.length > 0 && found;
  });
  expect(letter!.headers).toMatchObject({ 'x-reason': 'conflict' });
  expect(letter!.headers['x-detail']).toContain('event 1 of the batch of 2');
  for (const id of ['b-1', 'b-2', 'b-3', 'b-4']) expect(await effects(idOf(id))).toBe(1);
}, 60_000);
