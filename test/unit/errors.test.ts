import { expect, test } from 'vitest';
import { describe as tell, toError, withoutSecrets } from '../../src/runtime/errors.js';

const circular: Record<string, unknown> = {};
circular.self = circular;

test.each([
  ['a string', 'boom', 'boom'],
  ['undefined', undefined, 'undefined'],
  ['null', null, 'null'],
  ['a number', 5, '5'],
  ['an object', { a: 1 }, '{"a":1}'],
  ['a circle', circular, '[object Object]'],
  ['a symbol', Symbol('s'), 'Symbol(s)'],
  ['a bigint', 5n, '[object BigInt]'],
])('%s that was thrown becomes an Error', (_, thrown, message) => {
  expect(toError(thrown)).toMatchObject({ name: 'NonError', message });
});

test('an Error stays itself', () => {
  const error = new TypeError('x');
  expect(toError(error)).toBe(error);
});

test.each([
  ['amqp://user:pass@host/v', 'amqp://***@host/v'],
  ['redis://:pass@host', 'redis://***@host'],
  ['postgres://u:p@ss@host/db', 'postgres://***@host/db'],
  ['mongodb+srv://u:p@h', 'mongodb+srv://***@h'],
  ['from amqp://a:b@c to redis://:d@e', 'from amqp://***@c to redis://***@e'],
  ['http://host:80/a@b', 'http://host:80/a@b'],
  ['nothing to hide: a@example.org', 'nothing to hide: a@example.org'],
])('%s loses its credentials', (text, clean) => {
  expect(withoutSecrets(text)).toBe(clean);
});

test.each([
  ['letters', 'a'.repeat(1_000_000)],
  ['colons', `x://${':'.repeat(1_000_000)}`],
  ['addresses', 'a://'.repeat(250_000)],
])('a megabyte of %s is read in one go, not in its square', (_, text) => {
  const began = performance.now();
  expect(withoutSecrets(text)).toBe(text);
  expect(performance.now() - began).toBeLessThan(1_000);
});

test('describe: one line, no secret, bounded, and the code where the message is empty', () => {
  expect(tell(new TypeError('a\n  b'))).toBe('TypeError: a b');
  expect(tell(new Error('amqp://u:p@h'))).toBe('Error: amqp://***@h');
  expect(tell(new Error('x'.repeat(1_000)))).toHaveLength(500);
  expect(tell(Object.assign(new AggregateError([]), { code: 'ECONNREFUSED' }))).toBe(
    'AggregateError: ECONNREFUSED',
  );
  expect(tell(new Error(''))).toBe('Error: no message');
});
