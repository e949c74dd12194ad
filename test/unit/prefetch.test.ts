import { expect, test } from 'vitest';
import { acked, delivered, isWorthChanging, NOTHING_SEEN, prefetchFor } from '../../src/broker/prefetch.js';

const LIMITS = { most: 300, bytes: 32 * 1024 * 1024 };
const of = (bytes: number, times = 100) => {
  let seen = NOTHING_SEEN;
  for (let time = 0; time < times; time += 1) seen = delivered(seen, bytes);
  return seen;
};

test('one at first, and as long as what is acked had been delivered before', () => {
  expect(prefetchFor(NOTHING_SEEN, LIMITS)).toBe(1);
  let seen = of(1_000);
  for (let time = 0; time < 299; time += 1) seen = acked(seen, true);
  expect(prefetchFor(seen, LIMITS)).toBe(1);
  // A crash leaves no more than a window of redeliveries behind.
  expect(prefetchFor(acked(seen, true), LIMITS)).toBe(300);
});

test('the whole window after the first acked message that is no redelivery', () => {
  expect(prefetchFor(acked(of(1_000), false), LIMITS)).toBe(300);
});

test.each([
  [100_000, 300],
  [1024 * 1024, 32],
  [8 * 1024 * 1024, 4],
  [64 * 1024 * 1024, 1],
  [0, 300],
])('bodies of %i bytes: %i', (bytes, expected) => {
  expect(prefetchFor(acked(of(bytes), false), LIMITS)).toBe(expected);
});

test('a few large bodies after many small ones narrow it, and small ones widen it again', () => {
  let seen = acked(of(1_000), false);
  for (let time = 0; time < 8; time += 1) seen = delivered(seen, 8 * 1024 * 1024);
  expect(prefetchFor(seen, LIMITS)).toBeLessThan(12);
  for (let time = 0; time < 100; time += 1) seen = delivered(seen, 1_000);
  expect(prefetchFor(seen, LIMITS)).toBe(300);
});

test('a small difference is not worth another consumer', () => {
  expect(isWorthChanging(300, 299)).toBe(false);
  expect(isWorthChanging(300, 150)).toBe(true);
  expect(isWorthChanging(100, 199)).toBe(false);
  expect(isWorthChanging(100, 200)).toBe(true);
  expect(isWorthChanging(1, 2)).toBe(true);
  expect(isWorthChanging(300, 300)).toBe(false);
});
