import { describe, expect, test } from 'vitest';
import { auditLines } from '../../src/broker/letter-audit.js';
import { isMeant } from '../../src/broker/letter-filter.js';
import { readLetter, replayOf } from '../../src/broker/letter.js';
import { startOf } from '../../src/broker/look.js';
import { readLetterFilter } from '../../src/cli/dlq-selection.js';

const letter = (headers: Record<string, unknown>, properties: object = {}, body = '{}') =>
  readLetter(
    {
      content: Buffer.from(body),
      fields: { exchange: 'twinbox.dlx', routingKey: 'twinbox.a' },
      properties: { messageId: 'm-1', type: 'a.done', headers, ...properties },
    },
    'a',
  );
const death = (reason: string, queue = 'twinbox.a'): object => ({
  reason,
  queue,
  count: 1,
  exchange: 'twinbox.events',
  'routing-keys': ['a.done'],
  time: { '!': 'timestamp', value: 1_700_000_000 },
});

describe('the reason', () => {
  test.each(['delivery_limit', 'expired', 'maxlen', 'rejected'])('of the broker: %s', (reason) => {
    const read = letter({ 'x-death': [death(reason), death('expired', 'elsewhere')] });
    expect(read).toMatchObject({ reason: reason.replace('_', '-'), diedAtMs: 1_700_000_000_000 });
    expect(read.origin).toEqual({ exchange: 'twinbox.events', routingKey: 'a.done' });
    expect(read.detail).toMatch(/\w+ \w+/);
  });
  test('of ours wins over a death on the way', () => {
    const headers = {
      'x-reason': 'failed',
      'x-detail': 'why',
      'x-died-at-ms': 7,
      'x-death': [death('expired', 'delay')],
    };
    expect(letter(headers)).toMatchObject({ reason: 'failed', detail: 'why', diedAtMs: 7 });
  });
  test('of nobody', () => {
    expect(letter({ 'x-death': 'often', 'x-first-death-reason': 'maxlen' }).reason).toBe('maxlen');
    expect(letter({ 'x-reason': 7 })).toMatchObject({ reason: 'unknown', diedAtMs: undefined });
    expect(letter({ 'x-reason': 'no-id', 'x-replay-count': 'many' })).toMatchObject({
      replayCount: 0,
      diedAtMs: undefined,
    });
  });
});

test('a letter is named by its message: however often it dies and is replayed, the name stays', () => {
  const first = letter({ tenant: 't', 'x-death': [death('delivery_limit')], 'x-delivery-count': 51 });
  const replayed = replayOf(first, 'a', 'key');
  const again = readLetter(
    {
      content: replayed.body,
      fields: { exchange: 'twinbox.dlx', routingKey: 'twinbox.a' },
      properties: {
        ...replayed.options,
        headers: { ...(replayed.options.headers as object), 'x-reason': 'conflict' },
      },
    },
    'a',
  );
  expect(again).toMatchObject({
    letter: first.letter,
    replayCount: 1,
    reason: 'conflict',
    origin: first.origin,
  });
  expect(replayOf(again, 'a', 'key').options.headers).toMatchObject({ 'x-replay-count': 2 });
  for (const other of [
    letter({ tenant: 'u' }),
    letter({ tenant: 't' }, { messageId: 'm-2' }),
    letter({ tenant: 't' }, {}, '[]'),
  ])
    expect(other.letter).not.toBe(first.letter);
});

test('a replay has no expiration, no foreign user, no copies, and no id where there was none', () => {
  const read = letter({ CC: ['x'] }, { messageId: undefined, expiration: '5', userId: 'them' });
  const { options, exchange, routingKey } = replayOf(read, 'a', 'in-flight');
  expect([exchange, routingKey]).toEqual(['', 'twinbox.a']);
  expect(Object.keys(options)).toContain('messageId');
  expect(options).toMatchObject({ messageId: undefined });
  expect(options).not.toHaveProperty('expiration');
  expect(options).not.toHaveProperty('userId');
  expect(options.headers).not.toHaveProperty('CC');
  expect(options.headers).toMatchObject({ 'x-original-cc': ['x'], 'x-original-user-id': 'them' });
});

test.each([
  ['in order', [5, 5, 4, 1, 1], 0],
  ['turned round', [2, 2, 3, 3, 3], 2],
  ['turned round, with what was looked at less often', [1, 1, 3, 2, 2], 2],
  ['by others: nobody can tell', [1, 2, 1, 2], 0],
  ['one', [1], 0],
  ['none', [], 0],
])('where a queue begins: %s', (_, returns, start) => {
  expect(startOf(returns)).toBe(start);
});

test('a filter means what it says, and * is any characters', () => {
  const read = letter({ 'x-reason': 'conflict', 'x-died-at-ms': 1_000 });
  for (const filter of [
    {},
    { ids: ['m-1'] },
    { type: 'a.*' },
    { type: '*' },
    { cause: 'conflict' },
    { fromMs: 1_000, toMs: 1_000 },
    { letters: [read.letter] },
  ])
    expect(isMeant(filter, read)).toBe(true);
  for (const filter of [
    { ids: [] },
    { type: 'a' },
    { type: 'a?done' },
    { type: 'aXdone' },
    { cause: 'no-id' },
    { fromMs: 1_001 },
    { toMs: 999 },
    { letters: ['0'] },
    { ids: ['m-1'], cause: 'x' },
  ])
    expect(isMeant(filter, read)).toBe(false);
  expect(isMeant({ ids: [''] }, letter({}, { messageId: '' }))).toBe(false);
  expect(isMeant({ toMs: Infinity }, letter({}))).toBe(false);
});

test('times are instants with a zone, or spans before now', () => {
  const read = (from: string) => readLetterFilter({ from }, 10_000_000).fromMs;
  expect(read('2h')).toBe(10_000_000 - 7_200_000);
  expect(read('2026-03-01T12:00:00.250Z')).toBe(Date.parse('2026-03-01T12:00:00.250Z'));
  expect(read('2026-03-01 12:00+0200')).toBe(Date.parse('2026-03-01T10:00:00Z'));
  expect(() => read('2026-02-30T12:00:00Z')).toThrow('there is no such time');
  expect(() => read('2026-03-01T25:00:00Z')).toThrow('there is no such time');
});

test('an audit line is put together from its steps; one without an end says so, one without a beginning is left out', () => {
  const begun = {
    step: 'begun',
    at: 'now',
    who: 'me',
    command: 'dlq purge',
    actor: 'a',
    filter: {},
  } as const;
  const one = { letter: 'x', reason: 'failed', id: null };
  expect(
    auditLines([
      { step: 'letters', run: 'lost', letters: [one] },
      { ...begun, run: '1' },
      { ...begun, run: '2' },
      { step: 'letters', run: '1', letters: [one] },
      { step: 'letters', run: '2', letters: [one] },
      { step: 'letters', run: '1', letters: [one] },
      { step: 'ended', run: '1', ended: 'complete' },
    ]),
  ).toEqual([
    {
      at: 'now',
      who: 'me',
      command: 'dlq purge',
      actor: 'a',
      filter: {},
      letters: [one, one],
      ended: 'complete',
    },
    { at: 'now', who: 'me', command: 'dlq purge', actor: 'a', filter: {}, letters: [one] },
  ]);
});
