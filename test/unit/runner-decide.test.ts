import { describe, expect, it } from 'vitest';
import { afterFailure, lastErrorOf, loggable } from '../../src/runner/decide.js';
import { THROWN } from '../support/actors/thrown.js';

const BACKOFF = { firstMs: 1_000, capMs: 300_000 };

it('waits longer after each failure, never beyond the cap, and is dead with the last attempt', () => {
  expect(afterFailure(0, 8, BACKOFF, 0)).toEqual({ retryInMs: 500 });
  expect(afterFailure(0, 8, BACKOFF, 1)).toEqual({ retryInMs: 1_000 });
  expect(afterFailure(1, 8, BACKOFF, 1)).toEqual({ retryInMs: 2_000 });
  expect(afterFailure(40, 99, BACKOFF, 1)).toEqual({ retryInMs: 300_000 });
  expect(afterFailure(6, 8, BACKOFF, 0)).toHaveProperty('retryInMs');
  expect(afterFailure(7, 8, BACKOFF, 0)).toEqual({ dead: 'failed' });
  // An actor whose attempts were lowered under the failures a message has already.
  expect(afterFailure(9, 3, BACKOFF, 0)).toEqual({ dead: 'failed' });
  expect(afterFailure(0, 1, BACKOFF, 0)).toEqual({ dead: 'failed' });
});

describe('P-01 what is remembered of whatever was thrown', () => {
  it.each(THROWN.filter(({ error }) => error !== undefined))('$name', async ({ effect, error }) => {
    const thrown: unknown = await (async () => effect())().then(
      () => expect.unreachable('it returned'),
      (reason: unknown) => reason,
    );
    const last = lastErrorOf(thrown, 'receipt');
    expect(last.name).toBe(error?.name);
    expect(last.message).toContain(error?.contains);
    if (error?.lacks !== undefined) expect(last.message).not.toContain(error.lacks);
    expect(last.message.length).toBeLessThanOrEqual(1_000);
  });
});

it('groups errors that differ in numbers, ids and quoted words alone', () => {
  const group = (message: string, actor = 'receipt') => lastErrorOf(new Error(message), actor).group;
  expect(group('order 17 of "bob" failed')).toBe(group('order 4 of "eve" failed'));
  expect(group('order 17 failed')).not.toBe(group('order 17 was refused'));
  expect(group('order 17 failed')).not.toBe(group('order 17 failed', 'ledger'));
});

it('shortens what is too long for a log line, and lets no credential through at the cut', () => {
  const short = new Error('as it is');
  expect(loggable(short)).toBe(short);
  const frozen = Object.freeze(new RangeError('ice'));
  expect(loggable(frozen)).not.toBe(frozen);
  expect(loggable(frozen)).toMatchObject({ name: 'RangeError', message: 'ice', stack: frozen.stack });
  const secret = 'amqp://app:s3cret@host';
  const long = new TypeError(`${'x '.repeat(3_994)}${secret} ${'y'.repeat(1_000_000)}`);
  const { name, message, stack } = loggable(long);
  expect(name).toBe('TypeError');
  expect(message.length).toBeLessThan(8_100);
  expect(message).toContain('(1008011 characters)');
  expect(stack).toMatch(/^TypeError: x [^]*runner-decide\.test/);
  expect(stack!.length).toBeLessThan(20_000);
  expect(`${message} ${stack!}`).not.toContain('s3c');
});
