import { describe, expect, test } from 'vitest';
import { readDelivery, readPayload, type Envelope, type WithoutId } from '../../src/message/index.js';
import { GOOD, inputsOf, type Input } from '../support/inputs.js';

/** As the client library hands it over: what arrives has no undefined members. */
function read(
  { properties, body }: Pick<Input, 'properties' | 'body'>,
  withoutId: WithoutId = 'dead-letter',
) {
  return readDelivery(
    {
      content: body,
      fields: { exchange: 'twinbox.in', routingKey: 'order.placed', redelivered: false },
      properties,
    },
    { maxBodyBytes: 8_388_608, withoutId },
  );
}
function one(input: Pick<Input, 'properties' | 'body'>): Envelope {
  const reading = read(input);
  if ('refusal' in reading) throw new Error(JSON.stringify(reading.refusal));
  expect(reading.envelopes).toHaveLength(1);
  return reading.envelopes[0] as Envelope;
}
const payload = ({ source, ...rest }: Envelope) => readPayload({ ...rest, format: source.format }, 8_388_608);
const EFFECT_GETS: Readonly<Record<string, (input: Input) => unknown>> = {
  body: ({ body }) => JSON.parse(body.toString()) as unknown,
  'body.data': ({ body }) => (JSON.parse(body.toString()) as { data: unknown }).data,
  'body.message': ({ body }) => (JSON.parse(body.toString()) as { message: unknown }).message,
  'the decoded data_base64': () => GOOD,
  'the order, decoded twice': () => GOOD,
};

describe('I-07 what other producers send', () => {
  const inputs = inputsOf('producer-formats');
  test.each(inputs.map((input) => [input.case, input] as const))('%s', (_, input) => {
    const { expect: wanted } = input;
    const reading = read(input);
    if (wanted.in === 'dlq') {
      expect(reading).toMatchObject({ refusal: { reason: wanted.reason } });
      if (typeof wanted.detail === 'string')
        expect('refusal' in reading && reading.refusal.detail).toContain(wanted.detail);
      return;
    }
    const envelope = one(input);
    if (wanted.format !== undefined) expect(envelope.source.format).toBe(wanted.format);
    if (wanted.idSource !== undefined) expect(envelope.source.idSource).toBe(wanted.idSource);
    if (wanted.messageId !== undefined) expect(envelope.messageId).toBe(wanted.messageId);
    if (wanted.type !== undefined) expect(envelope.type).toBe(wanted.type);
    if (wanted.createdAt !== undefined)
      expect(new Date(envelope.createdAtMs ?? NaN).toISOString()).toBe(wanted.createdAt);
    const named = (name: unknown) => one(inputs.find((other) => other.case === name) as Input);
    if (wanted.sameDocumentAs !== undefined)
      expect(envelope).toMatchObject({
        messageId: named(wanted.sameDocumentAs).messageId,
        bodyHash: named(wanted.sameDocumentAs).bodyHash,
      });
    if (wanted.notSameDocumentAs !== undefined)
      expect(envelope.messageId).not.toBe(named(wanted.notSameDocumentAs).messageId);
    if (typeof wanted.effectGets === 'string')
      expect(payload(envelope)).toEqual({ value: EFFECT_GETS[wanted.effectGets]?.(input) });
    if (wanted.in === 'dead') expect(payload(envelope)).toHaveProperty('fault');
  });
  test('every wording of what the effect gets is known here', () => {
    for (const { expect: wanted } of inputs)
      if (wanted.effectGets !== undefined) expect(EFFECT_GETS).toHaveProperty([wanted.effectGets as string]);
  });
});

const event = (id: unknown, more: object = {}) => ({
  specversion: '1.0',
  id,
  source: '/shop',
  type: 'order.placed',
  data: GOOD,
  ...more,
});
const structured = (body: unknown, contentType = 'application/cloudevents+json') => ({
  properties: { contentType },
  body: Buffer.from(JSON.stringify(body)),
});
const BATCH = 'application/cloudevents-batch+json';

describe('CloudEvents', () => {
  test('each event of a batch is a message of its own, with its own body', () => {
    const reading = read(structured([event('b-1'), event('b-2', { data: { other: 1 } })], BATCH));
    if ('refusal' in reading) throw new Error(reading.refusal.detail);
    expect(reading.envelopes.map(({ messageId }) => messageId)).toEqual([
      '["/shop","b-1"]',
      '["/shop","b-2"]',
    ]);
    expect(reading.envelopes.map(payload)).toEqual([{ value: GOOD }, { value: { other: 1 } }]);
    expect(new Set(reading.envelopes.map(({ bodyHash }) => bodyHash)).size).toBe(2);
  });
  test.each([
    ['an empty one', []],
    ['one event without its brackets', event('b-1')],
    ['one with a member that is no event', [event('b-1'), 5]],
  ])('a batch that is %s is refused whole', (_, body) => {
    expect(read(structured(body, BATCH))).toMatchObject({ refusal: { reason: 'bad-envelope' } });
  });
  test('a batch of which one has no id is refused whole, or has a hash where the actor wants one', () => {
    const body = [event('b-1'), event(undefined)];
    expect(read(structured(body, BATCH))).toMatchObject({ refusal: { reason: 'no-id' } });
    expect(read(structured(body, BATCH), 'hash')).toMatchObject({
      envelopes: [{ messageId: '["/shop","b-1"]' }, { source: { idSource: 'hash' } }],
    });
  });
  test('source and id cannot be mixed up between two events', () => {
    const ids = [
      one(structured(event('b', { source: '/a' }))),
      one(structured(event('","b', { source: '/a' }))),
      one(structured(event('b', { source: '/a","' }))),
    ].map(({ messageId }) => messageId);
    expect(new Set(ids).size).toBe(3);
  });
  test('data that is no JSON is a fault of the payload, not of the envelope', () => {
    expect(payload(one(structured(event('x', { data: undefined, data_base64: '/w==' }))))).toHaveProperty(
      'fault',
    );
    expect(payload(one(structured(event('x', { data: undefined, data_base64: 5 }))))).toHaveProperty('fault');
  });
});

describe('a message without an id, where the actor takes the hash', () => {
  const nameless = (body: string, more: object = {}) => {
    const reading = read({ properties: { ...more }, body: Buffer.from(body) }, 'hash');
    if ('refusal' in reading) throw new Error(reading.refusal.detail);
    return reading.envelopes[0] as Envelope;
  };
  test('body, type and key make the id; it is the same at every delivery', () => {
    const first = nameless('{"a":1}');
    expect(first.messageId).toMatch(/^sha256:[0-9a-f]{64}$/);
    expect(first.source).toMatchObject({ format: 'plain', idSource: 'hash' });
    expect(nameless('{"a":1}').messageId).toBe(first.messageId);
    const others = [
      nameless('{"a":2}'),
      nameless('{"a":1}', { type: 'other' }),
      nameless('{"a":1}', { headers: { 'x-key': 'k' } }),
    ];
    expect(new Set([first, ...others].map(({ messageId }) => messageId)).size).toBe(4);
  });
  test('an id that is none stays refused', () => {
    expect(read({ properties: { messageId: '\uFFFD' }, body: Buffer.from('{}') }, 'hash')).toMatchObject({
      refusal: { reason: 'bad-id' },
    });
  });
});

describe('ids', () => {
  test.each([
    ['half of a surrogate pair', 'a\uD800'],
    ['513 bytes', 'x'.repeat(513)],
  ])('%s is refused', (_, id) => {
    expect(read({ properties: { messageId: id }, body: Buffer.from('{}') })).toMatchObject({
      refusal: { reason: 'bad-id' },
    });
  });
  test('a number is an id as long as no other one can be read alike', () => {
    const of = (id: unknown) => read({ properties: { headers: { id } }, body: Buffer.from('{}') });
    expect(of(9_007_199_254_740_991)).toMatchObject({ envelopes: [{ messageId: '9007199254740991' }] });
    expect(of(9_007_199_254_740_992)).toMatchObject({ refusal: { reason: 'bad-id' } });
    expect(of(9_007_199_254_740_993n)).toMatchObject({ envelopes: [{ messageId: '9007199254740993' }] });
  });
  test('bytes in a header are an id where they are UTF-8', () => {
    const of = (id: Buffer) => read({ properties: { headers: { id } }, body: Buffer.from('{}') });
    expect(of(Buffer.from('ü-1'))).toMatchObject({ envelopes: [{ messageId: 'ü-1' }] });
    expect(of(Buffer.from([0xff]))).toMatchObject({ refusal: { reason: 'bad-id' } });
    expect(of(Buffer.alloc(0))).toMatchObject({ refusal: { reason: 'no-id' } });
  });
});

test('whatever stands in properties, headers and body: reading and opening never throw', () => {
  const strange = [
    undefined,
    null,
    '',
    ' ',
    5,
    -0,
    NaN,
    10n,
    true,
    [],
    [[]],
    {},
    { '!': 'timestamp', value: 'x' },
  ];
  const values = [...strange, Buffer.from([0xff]), Buffer.from('x'), '\uD800', '"', '[{"id":{}}]', '{'];
  const names = [
    'id task retries type eventType laravel __TypeId__ __proto__ constructor cap-msg-id cap-senttime MessageId',
    'MT-MessageType MT-OriginalMessageId NServiceBus.MessageId NServiceBus.TimeSent NServiceBus.EnclosedMessageTypes',
    'cloudEvents:specversion cloudEvents:id cloudEvents_specversion cloudEvents:time x-key x-sequence traceparent',
    'X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp\\TransportMessageIdStamp',
  ].flatMap((line) => line.split(' '));
  const bodies = [
    '',
    '{',
    'null',
    '5',
    '[]',
    '[{}]',
    '{"id":{}}',
    '{"messageId":[],"messageType":[[]],"message":5}',
  ];
  const types = [
    '',
    'application/json',
    'application/cloudevents+json',
    BATCH,
    'application/vnd.masstransit+json',
  ];
  let reads = 0;
  for (const name of names)
    for (const value of values)
      for (const contentType of types)
        for (const body of bodies) {
          const headers = JSON.parse('{}') as Record<string, unknown>;
          Object.defineProperty(headers, name, { value, enumerable: true });
          const properties = { headers, contentType, messageId: value, timestamp: value, type: value };
          const reading = read({ properties, body: Buffer.from(body) });
          if ('envelopes' in reading) for (const envelope of reading.envelopes) payload(envelope);
          reads += 1;
        }
  expect(reads).toBe(names.length * values.length * types.length * bodies.length);
});
