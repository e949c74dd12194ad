import { expect, test } from 'vitest';
import { createBrake } from '../../src/web/brake.js';

test('waits double from the sixth failure on, up to a minute, and are forgotten after a quarter of an hour', () => {
  let nowMs = 1_000_000;
  const brake = createBrake(() => nowMs);
  const waits: number[] = [];
  for (let failure = 1; failure <= 14; failure += 1) {
    brake.failed('a');
    waits.push(brake.waitMs('a'));
    nowMs += brake.waitMs('a');
  }
  expect(waits).toEqual([0, 0, 0, 0, 0, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]);
  brake.failed('a');
  expect([brake.waitMs('a'), brake.waitMs('b')]).toEqual([60_000, 0]);
  nowMs += 15 * 60_000;
  brake.failed('a');
  expect(brake.waitMs('a')).toBe(0);
});

test('the right password takes the brake off', () => {
  const brake = createBrake(() => 0);
  for (let failure = 1; failure <= 6; failure += 1) brake.failed('a');
  expect(brake.waitMs('a')).toBe(1_000);
  brake.succeeded('a');
  expect(brake.waitMs('a')).toBe(0);
});

test('a flood of addresses pushes out the quietest, not the one that goes on', () => {
  const brake = createBrake(() => 0);
  for (let failure = 1; failure <= 6; failure += 1) brake.failed('quiet');
  for (let address = 1; address <= 1_000; address += 1) {
    brake.failed('loud');
    brake.failed(`other-${address}`);
  }
  expect([brake.waitMs('quiet'), brake.waitMs('loud')]).toEqual([0, 60_000]);
});
