import pg from 'pg';
import { expect, test } from 'vitest';
import { writeEvent, type OutboxEvent } from '../../src/outbox/index.js';
import { DEFAULT_MAX_BODY_BYTES, LARGEST_MAX_BODY_BYTES } from '../../src/runtime/limits.js';
import { SETTINGS } from '../../src/runtime/settings.js';
import { bodyOf, faults, refusal, ROW, write } from '../support/event-writer.js';

test('the statement has $1 to $8, each once and in order: an adapter may count on it', async () => {
  const { text, params } = await write({});
  expect(text.match(/\$\d+/g)).toEqual(['$1', '$2', '$3', '$4', '$5', '$6', '$7', '$8']);
  expect(text).not.toContain('?');
  expect(params).toHaveLength(8);
});

test('type, routing key, key and content type end at their bytes, not at their characters', async () => {
  for (const [field, max] of [
    ['type', 255],
    ['routingKey', 255],
    ['contentType', 255],
    ['key', 1_024],
  ] as const) {
    await write({ [field]: 'x'.repeat(max) });
    await write({ [field]: `${'x'.repeat(max - 4)}🦊` });
    expect(await faults({ [field]: 'x'.repeat(max + 1) })).toEqual([
      `${field} has ${max + 1} bytes in UTF-8, more than ${max}`,
    ]);
    expect(await faults({ [field]: `${'x'.repeat(max - 3)}🦊` })).toEqual([
      `${field} has ${max + 1} bytes in UTF-8, more than ${max}`,
    ]);
    expect(await faults({ [field]: '' })).toEqual([`${field} is empty`]);
    expect(await faults({ [field]: 7 })).toEqual([`${field} is a number`]);
    expect(await faults({ [field]: 'a\0b' })).toEqual([
      `${field} contains the character U+0000, which Postgres text cannot hold`,
    ]);
    expect(await faults({ [field]: '🦊'.slice(0, 1) })).toEqual([
      `${field} contains half of a surrogate pair`,
    ]);
  }
  expect(await faults({ type: undefined })).toEqual(['type is undefined']);
  for (const absent of [undefined, null])
    expect((await write({ routingKey: absent, contentType: absent, key: absent })).params[3]).toBeNull();
});

class Money {
  readonly cents = 3;
}

test.each<[string, unknown]>([
  ['plain values', { a: 1, b: 'x', c: [true, null, { d: 1.5 }], 'odd key"': '\0\ud800' }],
  ['a Date', { at: new Date(0), list: [new Date(1)] }],
  ['a toJSON', { price: { toJSON: (key: string) => `${key}!` }, deep: { toJSON: () => ({ a: [1] }) } }],
  ['the same object twice', ((shared) => ({ a: shared, b: [shared, shared] }))({ x: {} })],
  ['a class', { money: new Money() }],
  ['boxed values', [new String('s'), new Number(1), new Boolean(false)]],
  ['no prototype', Object.assign(Object.create(null) as object, { a: 1 })],
  ['text', 'text'],
  ['null', null],
  ['empty', [[], {}, [{}], { a: {}, b: [] }]],
])('a body of %s is what JSON.stringify makes of it', async (_name, body) => {
  expect(bodyOf(await write({ body })).toString()).toBe(JSON.stringify(body));
});

test('bytes are sent as they are, with whatever is in them', async () => {
  const bytes = Buffer.from([0, 255, 128, 0]);
  expect(bodyOf(await write({ body: bytes }))).toBe(bytes);
  expect(
    bodyOf(await write({ body: new Uint8Array(bytes.buffer, bytes.byteOffset, 4).subarray(1) })),
  ).toEqual(bytes.subarray(1));
  expect(bodyOf(await write({ body: Buffer.alloc(0) }))).toHaveLength(0);
});

test('toJSON and getters are asked once: what was looked at is what is sent', async () => {
  let asked = 0;
  const body = {
    get counted() {
      return { toJSON: () => (asked += 1) };
    },
  };
  expect(bodyOf(await write({ body })).toString()).toBe('{"counted":1}');
});

const circular: Record<string, unknown> = { list: [] };
(circular.list as unknown[]).push({ back: circular });

test.each<[string, unknown, string]>([
  ['undefined', undefined, 'body is undefined, which JSON does not have'],
  ['undefined', { items: [{}, {}, { price: undefined }] }, 'body.items[2].price is undefined, which JSON'],
  ['undefined', { a: { 'odd key': undefined } }, 'body.a["odd key"] is undefined, which JSON'],
  ['a hole in an array', { a: new Array(1) }, 'body.a[0] is undefined, which JSON'],
  ['a toJSON without answer', { a: { toJSON: () => undefined } }, 'body.a is undefined'],
  ['a function', { f: () => 1 }, 'body.f is a function, which JSON'],
  ['a symbol', [Symbol('s')], 'body[0] is a symbol, which JSON'],
  ['a symbol key', { a: { [Symbol('s')]: 1 } }, 'body.a has a symbol for a key'],
  ['a bigint', { n: 1n }, 'body.n is a bigint, which JSON'],
  ['a boxed bigint', { n: Object(1n) as unknown }, 'body.n is a BigInt object, which JSON'],
  ['NaN', { n: NaN }, 'body.n is NaN, which JSON turns into null'],
  ['Infinity', [-Infinity], 'body[0] is -Infinity, which JSON turns into null'],
  ['a boxed NaN', { n: new Number(NaN) }, 'body.n is NaN, which JSON turns into null'],
  ['an invalid Date', { at: new Date(NaN) }, 'body.at is an invalid Date'],
  ['a Promise', { user: Promise.resolve(1) }, 'body.user is a Promise, which JSON turns into {}'],
  ['a Map', { m: new Map([[1, 2]]) }, 'body.m is a Map, whose content JSON leaves out'],
  ['a Set', new Set([1]), 'body is a Set, whose content JSON leaves out'],
  ['a RegExp', { r: /x/ }, 'body.r is a RegExp, whose content JSON leaves out'],
  ['an Error', { e: new TypeError('x') }, 'body.e is a TypeError, whose content JSON leaves out'],
  ['an ArrayBuffer', { b: new ArrayBuffer(1) }, 'body.b is a ArrayBuffer, whose content JSON leaves out'],
  ['itself', circular, 'body.list[0].back contains itself'],
])('a body with %s is refused, with the path', async (_name, body, expected) => {
  expect(await faults({ body })).toEqual([expect.stringContaining(expected)]);
});

test('a body that cannot be read to its end is refused', async () => {
  const deep: Record<string, unknown> = {};
  let end = deep;
  for (let level = 0; level < 200_000; level += 1) end = end.next = {};
  expect(await faults({ body: deep })).toEqual([
    expect.stringMatching(/^body is nested more than \d+ deep$/),
  ]);
  const broken = {
    get a() {
      throw new Error('not loaded');
    },
  };
  expect(await faults({ body: broken })).toEqual(['body cannot be turned into JSON (not loaded)']);
});

test('a body ends at maxBodyBytes, which is 8 MiB unless given, like MAX_BODY_BYTES', async () => {
  expect(SETTINGS.MAX_BODY_BYTES.schema.parse(undefined)).toBe(DEFAULT_MAX_BODY_BYTES);
  expect(DEFAULT_MAX_BODY_BYTES).toBe(8 * 1024 * 1024);
  await write({ body: Buffer.alloc(DEFAULT_MAX_BODY_BYTES) });
  expect(await faults({ body: Buffer.alloc(DEFAULT_MAX_BODY_BYTES + 1) })).toEqual([
    'body has 8388609 bytes, more than 8388608',
  ]);
  await write({ body: '🦊🦊' }, 10);
  expect(await faults({ body: '🦊🦊' }, 9)).toEqual(['body has 10 bytes, more than 9']);
  for (const none of [0, 1.5, NaN, LARGEST_MAX_BODY_BYTES + 1])
    await expect(write({}, none)).rejects.toThrow(RangeError);
});

test('an id is a UUID; a delay is a valid Date and has no key', async () => {
  await write({ eventId: ROW.eventId.toUpperCase() });
  for (const eventId of ['', 'o-1', `{${ROW.eventId}}`, `${ROW.eventId}0`, 7])
    expect(await faults({ eventId })).toEqual(['eventId is not a UUID']);
  expect((await write({ publishAfter: new Date(5) })).params[7]).toBe('1970-01-01T00:00:00.005Z');
  for (const publishAfter of [new Date(NaN), new Date(-1), new Date(8.64e15)])
    expect(await faults({ publishAfter })).toEqual(['publishAfter is not a valid time from 1970 to 9999']);
  expect(await faults({ publishAfter: 5_000 })).toEqual(['publishAfter is a number']);
  expect(await faults({ publishAfter: new Date(), key: 'k' })).toEqual([
    'publishAfter is given together with key, and would hold back every later event of that key',
  ]);
});

test('all faults are told in one error, with what to do, and with no value', async () => {
  const error = await refusal({
    type: '',
    key: 7,
    publish_after: new Date(),
    headers: { cc: 'secret-1' },
    body: { password: 'secret-2', a: [undefined, 1n] },
  });
  expect(error.message.split('\n')).toEqual([
    'the event was not written:',
    '- "publish_after" is no field of an event: use type, body, key, eventId, routingKey, contentType, headers, publishAfter',
    '- type is empty: give it at least one character',
    '- key is a number: give a string',
    '- headers.cc has a meaning for the broker, which would send copies: use another name',
    '- body.a[0] is undefined, which JSON does not have: leave it out, or write null',
    '- body.a[1] is a bigint, which JSON does not have: write String(it)',
  ]);
  expect(error).toBeInstanceOf(TypeError);
  const many = await refusal({ body: new Array(1_000) });
  expect(many.faults).toHaveLength(1_000);
  expect(many.message.split('\n').at(-1)).toBe('- and 980 more');
  for (const none of [undefined, null, 'x'])
    await expect(writeEvent(() => Promise.resolve([]), none as unknown as OutboxEvent)).rejects.toThrow(
      'give an object with type and body',
    );
});

test('what is no transaction is refused, with the fix', async () => {
  const event = { type: 't', body: {} };
  const pool = new pg.Pool({ connectionString: 'postgres://nobody@127.0.0.1:1/none' });
  await expect(writeEvent(pool, event)).rejects.toThrow(/tx is a Pool.*use the client that inTransaction/);
  const idle = { query: () => Promise.reject(new Error('was sent')), getTransactionStatus: () => 'I' };
  await expect(writeEvent(idle, event)).rejects.toThrow(/in no transaction.*await BEGIN first/);
  for (const none of [undefined, null, {}, 'BEGIN'])
    await expect(writeEvent(none as never, event)).rejects.toThrow('tx must be a pg client in a transaction');
});

test('a query function that does not answer with the row is told', async () => {
  for (const answer of [undefined, null, [], {}, { rows: [] }, [{ id: 1 }], 1])
    await expect(writeEvent(() => Promise.resolve(answer), { type: 't', body: {} })).rejects.toThrow(
      'the query function did not answer with the row',
    );
});
