import { expect, test } from 'vitest';
import type { Outcome } from '../../src/broker/index.js';
import type { OutboxRow } from '../../src/outbox/index.js';
import { judge, limitIn, toPublication, unsendable } from '../../src/relay/decide.js';

const POLICY = {
  maxAttempts: 3,
  backoff: { firstMs: 1_000, capMs: 10_000 },
  maxBodyBytes: 100,
  parkedBlocks: false,
};
const ROW: OutboxRow = {
  id: '17',
  eventId: '0b5e3f0e-0000-4000-8000-000000000001',
  type: 'order.placed',
  routingKey: null,
  key: null,
  slot: 0,
  body: Buffer.from('{}'),
  contentType: 'application/json',
  headers: {},
  createdAtMs: 1_700_000_000_123.456,
  attempts: 0,
};
const closed = (closedWith?: number): Outcome => ({
  kind: 'unknown',
  detail: 'closed',
  ...(closedWith === undefined ? {} : { closedWith }),
});

test.each<[string, Outcome, boolean, string]>([
  ['confirmed', { kind: 'confirmed' }, false, 'mark'],
  ['not sent', { kind: 'not-sent' }, false, 'again'],
  ['not sent, alone', { kind: 'not-sent' }, true, 'again'],
  ['no answer', closed(), false, 'again'],
  ['no answer, alone', closed(), true, 'again'],
  ['closed with 404', closed(404), true, 'again'],
  ['closed with 403', closed(403), true, 'again'],
  ['closed with 320', closed(320), true, 'again'],
  ['closed with 541', closed(541), true, 'again'],
  ['closed with 406', closed(406), false, 'suspect'],
  ['closed with 501', closed(501), false, 'suspect'],
  ['closed with 502', closed(502), false, 'suspect'],
  ['closed with 406, alone', closed(406), true, 'failure'],
  ['refused', { kind: 'refused', detail: 'd' }, false, 'failure'],
  ['returned', { kind: 'returned', detail: 'd' }, false, 'failure'],
  ['nacked', { kind: 'nacked' }, false, 'failure'],
])('%s → %s', (_, outcome, alone, kind) => {
  expect(judge(ROW, outcome, alone, POLICY, 0.5).kind).toBe(kind);
});

test.each<[string, Outcome, RegExp]>([
  [
    'returned',
    { kind: 'returned', detail: '312 NO_ROUTE: no queue is bound for order.placed' },
    /NO_ROUTE.*order/,
  ],
  ['nacked', { kind: 'nacked' }, /nack/],
])('%s backs off, and parks with the last attempt', (_, outcome, error) => {
  const waits = [0, 1, 2, 3].map((attempts) => {
    const verdict = judge({ ...ROW, attempts }, outcome, false, POLICY, 1);
    if (verdict.kind !== 'failure') throw new Error(verdict.kind);
    expect(verdict.failure).toMatchObject({ id: '17', error: expect.stringMatching(error) as string });
    return verdict.failure.retryInMs;
  });
  expect(waits).toEqual([1_000, 2_000, null, null]);
});

test.each<[string, Outcome]>([
  ['refused', { kind: 'refused', detail: 'the cause' }],
  ['guilty alone', { kind: 'unknown', detail: 'the cause', closedWith: 406 }],
])('%s parks at once with the cause', (_, outcome) => {
  expect(judge(ROW, outcome, true, POLICY, 1)).toMatchObject({
    failure: { retryInMs: null, error: expect.stringContaining('the cause') as string },
  });
});

test('what cannot be sent is known before it is', () => {
  expect(unsendable({ ...ROW, body: Buffer.alloc(100) }, POLICY)).toBeUndefined();
  expect(unsendable({ ...ROW, body: Buffer.alloc(101) }, POLICY)).toContain('101 bytes');
  expect(unsendable({ ...ROW, headers: { CC: ['x'] } }, POLICY)).toContain('CC');
  expect(unsendable({ ...ROW, headers: { BCC: 'x' } }, POLICY)).toContain('BCC');
});

test('a limit that the broker told is remembered: larger rows are not sent again', () => {
  const said =
    '406 (PRECONDITION-FAILED) PRECONDITION_FAILED - message size 60 is larger than configured max size 50';
  const limit = limitIn(said);
  expect(limit).toEqual({ bytes: 50, said });
  expect(limitIn('PRECONDITION_FAILED - invalid expiration')).toBeUndefined();
  expect(unsendable({ ...ROW, body: Buffer.alloc(51) }, POLICY, limit)).toContain('PRECONDITION_FAILED');
  expect(unsendable({ ...ROW, body: Buffer.alloc(50) }, POLICY, limit)).toBeUndefined();
});

test('an error with a NUL can be stored', () => {
  expect(judge(ROW, { kind: 'refused', detail: 'a\0b' }, false, POLICY, 1)).toMatchObject({
    failure: { error: 'cannot be sent: ab' },
  });
});

test('the message: the event id is its id, the type its routing key unless another is given', () => {
  const message = toPublication({ ...ROW, key: 'o-1', headers: { tenant: 'blue', 'x-sequence': 'forged' } });
  expect(toPublication({ ...ROW, headers: { 'x-key': 'forged' } }).options.headers).not.toHaveProperty(
    'x-key',
  );
  expect(message).toMatchObject({
    exchange: 'twinbox.events',
    routingKey: 'order.placed',
    messageId: ROW.eventId,
    options: {
      type: 'order.placed',
      timestamp: 1_700_000_000,
      contentType: 'application/json',
      headers: { tenant: 'blue', 'x-key': 'o-1', 'x-sequence': 17, 'x-created-at-ms': 1_700_000_000_123 },
    },
  });
  expect(toPublication({ ...ROW, routingKey: 'other' }).routingKey).toBe('other');
  expect(toPublication(ROW).options.headers).not.toHaveProperty('x-key');
});
