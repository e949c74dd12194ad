import { expect, test } from 'vitest';
import { backoffMs } from '../../src/runtime/retry.js';

const POLICY = { firstMs: 1_000, capMs: 300_000 };

test.each([
  [0, 1_000],
  [1, 1_000],
  [2, 2_000],
  [5, 16_000],
  [9, 256_000],
  [10, 300_000],
  [1_000, 300_000],
  [Number.MAX_SAFE_INTEGER, 300_000],
])('after %i failures at most %i ms, at least the half', (failures, full) => {
  expect(backoffMs(failures, POLICY, 1)).toBe(full);
  expect(backoffMs(failures, POLICY, 0)).toBe(full / 2);
});

test('always a whole number of milliseconds between half the first wait and the cap', () => {
  for (let failures = 0; failures < 200; failures += 1) {
    const wait = backoffMs(failures, POLICY, Math.random());
    expect(Number.isInteger(wait)).toBe(true);
    expect(wait).toBeGreaterThanOrEqual(500);
    expect(wait).toBeLessThanOrEqual(300_000);
  }
});

test('the preset attempts of the relay span more than a deploy', () => {
  let spanMs = 0;
  for (let failures = 1; failures < 24; failures += 1) spanMs += backoffMs(failures, POLICY, 0);
  expect(spanMs).toBeGreaterThan(30 * 60_000);
});
