import { createHash } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { readDelivery, type Envelope } from '../../src/message/index.js';

const LIMIT = 1_000;
const BODY = Buffer.from('{"orderId":"o-1"}');

function read(properties: Record<string, unknown>, content = BODY): ReturnType<typeof readDelivery> {
  const fields = { exchange: 'twinbox.events', routingKey: 'order.placed', redelivered: false };
  return readDelivery({ content, fields, properties }, { maxBodyBytes: LIMIT, withoutId: 'dead-letter' });
}
function envelope(properties: Record<string, unknown>, content = BODY): Envelope {
  const reading = read({ messageId: 'm-1', ...properties }, content);
  if ('refusal' in reading) throw new Error(reading.refusal.detail);
  expect(reading.envelopes).toHaveLength(1);
  return reading.envelopes[0] as Envelope;
}

test('an own message keeps everything that was said about it', () => {
  expect(
    envelope({
      type: 'order.placed',
      contentType: 'application/json',
      correlationId: 'c-1',
      headers: {
        'x-key': 'o-1',
        'x-sequence': 42,
        'x-created-at-ms': 1_700_000_000_123,
        traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
        tenant: 'blue',
      },
    }),
  ).toEqual({
    messageId: 'm-1',
    bodyHash: createHash('sha256').update(BODY).digest('hex'),
    type: 'order.placed',
    key: 'o-1',
    sequence: 42,
    body: BODY,
    contentType: 'application/json',
    headers: Object.assign(Object.create(null) as object, { tenant: 'blue' }),
    source: {
      exchange: 'twinbox.events',
      routingKey: 'order.placed',
      format: 'plain',
      idSource: 'props.messageId',
    },
    createdAtMs: 1_700_000_000_123,
    correlationId: 'c-1',
    traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
  });
});

test('without a type the routing key is the type; what is absent is absent, not undefined', () => {
  const plain = envelope({});
  expect(plain.type).toBe('order.placed');
  expect(Object.values(plain)).not.toContain(undefined);
});

test.each([
  ['none', undefined, 'no-id'],
  ['empty', '', 'no-id'],
  ['blank', ' \t', 'no-id'],
  ['a boolean', true, 'no-id'],
  ['not UTF-8', 'a\uFFFDb', 'bad-id'],
  ['513 bytes', 'é'.repeat(256) + 'x', 'bad-id'],
])('an id that is %s is refused', (_, messageId, reason) => {
  expect(read({ messageId })).toMatchObject({ refusal: { reason } });
});

test('an id of exactly 512 bytes is taken', () => {
  expect(envelope({ messageId: 'é'.repeat(256) }).messageId).toHaveLength(256);
});

test('the limit holds for the body as sent and as decoded, and is itself allowed', () => {
  expect(envelope({}, Buffer.alloc(LIMIT)).body).toHaveLength(LIMIT);
  expect(read({ messageId: 'm' }, Buffer.alloc(LIMIT + 1))).toMatchObject({
    refusal: { reason: 'too-large' },
  });
  const bomb = gzipSync(Buffer.alloc(LIMIT + 1));
  expect(read({ messageId: 'm', contentEncoding: 'gzip' }, bomb)).toMatchObject({
    refusal: { reason: 'too-large' },
  });
});

test('the body is kept as it was sent, and hashed so', () => {
  const sent = gzipSync(BODY);
  const kept = envelope({ contentEncoding: 'gzip' }, sent);
  expect(kept).toMatchObject({ body: sent, contentEncoding: 'gzip' });
  expect(kept.bodyHash).toBe(createHash('sha256').update(sent).digest('hex'));
});

test.each([
  ['a text', 'x'],
  ['zero', 0],
  ['negative', -1],
  ['a fraction', 1.5],
  ['beyond what a number holds', 2 ** 60],
  ['an object', {}],
])('a sequence that is %s is no sequence', (_, value) => {
  expect(envelope({ headers: { 'x-sequence': value } })).not.toHaveProperty('sequence');
});

test('headers: plain and small ones alone, none of the transport, none that reaches a prototype', () => {
  const headers = JSON.parse(
    '{"__proto__":"own","constructor":"c","n":1,"b":false,"o":{"a":1},"l":[1],"z":null,"x-death":"d","x-delivery-count":3,"x-reason":"r"}',
  ) as Record<string, unknown>;
  headers.big = 'x'.repeat(1_025);
  headers['nul\0'] = 'x';
  headers.nan = Number.NaN;
  const kept = envelope({ headers }).headers;
  expect(Object.keys(kept).sort()).toEqual(['__proto__', 'b', 'constructor', 'n']);
  expect(Object.getPrototypeOf(kept)).toBeNull();
});

test('headers: never more than 64', () => {
  const headers = Object.fromEntries(Array.from({ length: 500 }, (_, index) => [`h${index}`, index]));
  expect(Object.keys(envelope({ headers }).headers)).toHaveLength(64);
});

test.each([null, 'text', 5, []])('headers that are %j are none', (headers) => {
  expect(Object.keys(envelope({ headers }).headers)).toHaveLength(0);
});

test('a key over 1,024 bytes keeps its identity in a bounded form; what is no traceparent is dropped', () => {
  const keyOf = (key: string): string | undefined => {
    const reading = readDelivery(
      {
        content: BODY,
        fields: { exchange: 'e', routingKey: 'r', redelivered: false },
        properties: { messageId: 'm', headers: { 'x-key': key, traceparent: 'x'.repeat(100_000) } },
      },
      { maxBodyBytes: 1_000_000, withoutId: 'dead-letter' },
    );
    if ('refusal' in reading) throw new Error('refused');
    expect(reading.envelopes[0]).not.toHaveProperty('traceparent');
    return reading.envelopes[0]?.key;
  };
  expect(keyOf('k'.repeat(1_024))).toBe('k'.repeat(1_024));
  expect(keyOf('a'.repeat(2_000_000))).toMatch(/^sha256:[0-9a-f]{64}$/);
  expect(keyOf('a'.repeat(2_000_000))).not.toBe(keyOf('b'.repeat(2_000_000)));
});

test('what comes straight to its mailbox says itself where it was published first; replay headers are not the message', () => {
  const headers = {
    'x-original-exchange': 'twinbox.events',
    'x-original-routing-key': 'order.placed',
    'x-replayed-from': 'twinbox.receipt.dlq',
    'x-replay-count': 3,
    'x-died-at-ms': 5,
    tenant: 't',
  };
  const fields = { exchange: '', routingKey: 'twinbox.receipt', redelivered: false };
  const reading = readDelivery(
    { content: BODY, fields, properties: { messageId: 'm-1', headers } },
    { maxBodyBytes: LIMIT, withoutId: 'dead-letter' },
  );
  if ('refusal' in reading) throw new Error('refused');
  const [straight] = reading.envelopes;
  expect(straight).toMatchObject({
    type: 'order.placed',
    headers: { tenant: 't' },
    source: { exchange: 'twinbox.events', routingKey: 'order.placed' },
  });
  expect(Object.keys(straight?.headers ?? {})).toEqual(['tenant']);
  expect(envelope({ headers: { ...headers, 'x-original-exchange': 'elsewhere' } }).source.exchange).toBe(
    'twinbox.events', // not straight to its mailbox: the broker knows best
  );
});
