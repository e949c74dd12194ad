import { createRequire } from 'node:module';
import { join } from 'node:path';
import { context, createTraceState, trace, TraceFlags } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { AlwaysOffSampler, BasicTracerProvider } from '@opentelemetry/sdk-trace-base';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { HEADER, readDelivery } from '../../src/message/index.js';
import { toPublication } from '../../src/relay/decide.js';
import { faults, headersOf, ROW, write } from '../support/event-writer.js';

const W3C = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';

test.each<[string, unknown]>([
  ['headers.CC has a meaning for the broker', { CC: 'x' }],
  ['headers.bCc has a meaning for the broker', { bCc: 'x' }],
  ['headers.X-Key is a header that the way itself writes', { 'X-Key': 'x' }],
  ['headers.x-death is a header that the way itself writes', { 'x-death': 'x' }],
  ['headers.x-replayed-from is a header that the way itself writes', { 'x-replayed-from': 'x' }],
  ['headers.X-Replay-Count is a header that the way itself writes', { 'X-Replay-Count': 1 }],
  ['headers.x-died-at-ms is a header that the way itself writes', { 'x-died-at-ms': 1 }],
  ['headers.x-original-exchange is a header that the way', { 'x-original-exchange': 'x' }],
  ['headers.Traceparent is not read in this spelling', { Traceparent: W3C }],
  ['headers.traceparent is not a W3C traceparent', { traceparent: 'x' }],
  ['headers.$where has a name that the inbox does not keep', { $where: 'x' }],
  ['headers._bsontype has a name that the inbox does not keep', { _bsontype: 'ObjectId' }],
  ['headers.__proto__ has a name that the inbox does not keep', JSON.parse('{"__proto__":"x"}')],
  ['the name of headers[""] is empty', { '': 'x' }],
  ['the name of headers["a\\u0000"] contains the character U+0000', { 'a\0': 'x' }],
  [`the name of headers.${'n'.repeat(256)} has 256 bytes in UTF-8, more than 255`, { ['n'.repeat(256)]: 1 }],
  ['headers.a contains the character U+0000', { a: 'x\0' }],
  ['headers.a contains half of a surrogate pair', { a: '\udc00' }],
  ['headers.a is undefined', { a: undefined }],
  ['headers.a is null; a header is', { a: null }],
  ['headers.a is a bigint; a header is', { a: 1n }],
  ['headers.a is a function; a header is', { a: () => 1 }],
  ['headers.a is a Date; a header is', { a: new Date() }],
  ['headers.a is a Buffer; a header is', { a: Buffer.from('x') }],
  ['headers.a is an array; a header is', { a: ['x'] }],
  ['headers.a is an object; a header is', { a: { '!': 'timestamp', value: 1 } }],
  ['headers.a is NaN, which AMQP clients do not carry', { a: NaN }],
  ['headers.a is -Infinity, which AMQP clients do not carry', { a: -Infinity }],
  ['headers.a is a number beyond 2^53 - 1, which AMQP clients do not carry', { a: -(2 ** 53) }],
  ['headers.a has 1025 bytes, name and value together, more than the 1024', { a: 'x'.repeat(1_024) }],
  ['headers is an array', ['x']],
  ['headers is a Map', new Map([['a', 1]])],
  ['headers is a string', 'x'],
])('refused: %s', async (expected, headers) => {
  expect(await faults({ headers })).toEqual([expect.stringContaining(expected)]);
});

test('headers are bounded in number and in all', async () => {
  const many = (count: number, value: unknown): object =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`h-${index + 100}`, value]));
  await write({ headers: { ...many(64, 1), traceparent: W3C } });
  expect(await faults({ headers: many(65, 1) })).toEqual([
    'headers are 65, more than the 64 that the inbox keeps',
  ]);
  await write({ headers: many(32, 'x'.repeat(1_019)) }); // 32 × 1,024
  expect(await faults({ headers: { ...many(32, 'x'.repeat(1_019)), b: '' } })).toEqual([
    'headers have 32769 bytes in all, more than 32768',
  ]);
});

/** The client library's own encoder, which its door does not show. */
const library = createRequire(import.meta.url);
const codec = library(join(library.resolve('amqplib'), '../lib/codec.js')) as {
  encodeTable(buffer: Buffer, table: object, offset: number): number;
  decodeFields(slice: Buffer): Record<string, unknown>;
};

/** The headers as the inbox keeps them, after JSON, relay and wire. */
function arrived(headers: Record<string, unknown>): Record<string, unknown> {
  const { options } = toPublication({
    ...{ id: '1', eventId: ROW.eventId, type: 't', routingKey: null, key: 'k'.repeat(1_024), slot: 0 },
    ...{ body: Buffer.from('{}'), contentType: 'application/json', headers, createdAtMs: 1, attempts: 0 },
  });
  const wire = Buffer.alloc(65_536); // as large as the library's own
  const size = codec.encodeTable(wire, options.headers as object, 0);
  expect(size).toBeLessThan(40_000);
  const reading = readDelivery(
    {
      content: Buffer.from('{}'),
      fields: { exchange: 'e', routingKey: 't', redelivered: false },
      properties: { messageId: 'm', headers: codec.decodeFields(wire.subarray(4, size)) },
    },
    { maxBodyBytes: 1_000, withoutId: 'dead-letter' },
  );
  if ('refusal' in reading) throw new Error(reading.refusal.detail);
  return { ...reading.envelopes[0]?.headers };
}

test('every header that is accepted arrives in the inbox as it was given', async () => {
  for (const headers of [
    {
      tenant: 'blüe 🦊 "\'\\',
      empty: '',
      yes: true,
      no: false,
      'odd "name"': 'x',
      constructor: 'x',
      length: 3,
    },
    {
      zero: 0,
      small: -129,
      big: Number.MAX_SAFE_INTEGER,
      low: -Number.MAX_SAFE_INTEGER,
      tiny: 5e-324,
      part: -1.5,
    },
    { ['n'.repeat(255)]: 'x'.repeat(769), [`${'é'.repeat(127)}x`]: 1 },
    Object.fromEntries(Array.from({ length: 64 }, (_, index) => [`h-${index + 100}`, 'x'.repeat(507)])),
  ]) {
    expect(arrived(headersOf(await write({ headers })))).toEqual(headers);
  }
});

test('every name that the inbox does not keep is refused, our own all of them', async () => {
  const names = [...Object.values(HEADER), 'x-death', 'x-first-death-queue', 'x-last-death-reason']
    .concat('x-delivery-count', 'x-acquired-count', 'x-original-anything', '$a')
    .filter((name) => name !== HEADER.traceparent);
  for (const name of names) {
    expect(arrived({ [name]: 'x' })).toEqual({});
    expect(await faults({ headers: { [name]: 'x' } })).toHaveLength(1);
  }
});

describe('with OpenTelemetry', () => {
  const manager = new AsyncLocalStorageContextManager();
  beforeAll(() => {
    expect(context.setGlobalContextManager(manager.enable())).toBe(true);
  });
  afterAll(() => {
    context.disable();
  });
  const tracer = new BasicTracerProvider().getTracer('test');

  test('the active span goes along as traceparent, sampled or not', async () => {
    for (const [from, flags] of [
      [tracer, '01'],
      [new BasicTracerProvider({ sampler: new AlwaysOffSampler() }).getTracer('test'), '00'],
    ] as const) {
      await from.startActiveSpan('place order', async (span) => {
        const { traceId, spanId } = span.spanContext();
        expect(headersOf(await write({ headers: { tenant: 'blue' } }))).toEqual({
          tenant: 'blue',
          traceparent: `00-${traceId}-${spanId}-${flags}`,
        });
        span.end();
      });
    }
  });

  test('a tracestate goes along where it fits', async () => {
    const parent = { traceId: W3C.slice(3, 35), spanId: W3C.slice(36, 52), traceFlags: TraceFlags.SAMPLED };
    const state = createTraceState('vendor=opaque,other=1');
    const active = trace.setSpanContext(context.active(), { ...parent, traceState: state });
    await context.with(active, async () => {
      expect(headersOf(await write({}))).toEqual({ traceparent: W3C, tracestate: 'vendor=opaque,other=1' });
      const full = Object.fromEntries(Array.from({ length: 64 }, (_, index) => [`h-${index}`, 1]));
      expect(headersOf(await write({ headers: full }))).toEqual({ ...full, traceparent: W3C });
    });
    await context.with(trace.setSpanContext(active, { ...parent, traceId: '0'.repeat(32) }), async () => {
      expect(headersOf(await write({}))).toEqual({});
    });
  });

  test('what the event says of its trace stays; without a span there is none', async () => {
    await tracer.startActiveSpan('place order', async (span) => {
      for (const headers of [{ traceparent: W3C }, { tracestate: 'a=1' }])
        expect(headersOf(await write({ headers }))).toEqual(headers);
      span.end();
    });
    expect(headersOf(await write({}))).toEqual({});
  });
});
