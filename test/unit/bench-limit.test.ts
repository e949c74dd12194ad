import { describe, expect, test } from 'vitest';
import { limitOf } from '../../bench/limit.js';
import { interleave, median, percentile } from '../../bench/rounds.js';

describe('the limit of a stage (bench/limit.ts)', () => {
  const claim = { name: 'claim', rate: 20_000, cpuPer1000: 0.05 };
  const publish = { name: 'publish', rate: 12_000, cpuPer1000: 0.1 };

  test('is that of the cores where the steps together ask for more than there is', () => {
    expect(limitOf([[claim], [publish]], 1)).toEqual({
      limit: 6_667,
      byCpu: 6_667,
      ways: ['claim', 'publish'],
    });
  });

  test('is that of the slowest step where there are cores enough', () => {
    expect(limitOf([[claim], [publish]], 2)).toMatchObject({ limit: 12_000, byCpu: 13_333 });
  });

  test('takes the ways that give the highest limit, which are not always those of the highest rate', () => {
    const costly = { name: 'costly', rate: 14_000, cpuPer1000: 0.2 };
    expect(limitOf([[claim], [costly, publish]], 2)).toMatchObject({
      limit: 12_000,
      ways: ['claim', 'publish'],
    });
    expect(limitOf([[claim], [costly, publish]], 8)).toMatchObject({
      limit: 14_000,
      ways: ['claim', 'costly'],
    });
  });
});

test('every part runs once a round, and the rounds have orders of their own', async () => {
  const order: string[] = [];
  const parts = ['a', 'b', 'c', 'd'].map((name) => ({
    name,
    run: () => {
      order.push(name);
      return Promise.resolve(order.length);
    },
  }));
  const results = await interleave(parts, 3, () => undefined);
  expect([...results.values()].map((all) => all.length)).toEqual([3, 3, 3, 3]);
  const rounds = [0, 4, 8].map((at) => order.slice(at, at + 4).join(''));
  expect(rounds).toEqual(['abcd', 'adcb', 'cdab']);
});

test('medians and percentiles lie between the two values nearest to them', () => {
  expect(median([3, 1, 2])).toBe(2);
  expect(median([4, 1])).toBe(2.5);
  expect(percentile([5, 1, 4, 2, 3], 0.9)).toBeCloseTo(4.6);
  expect(median([])).toBeNaN();
});
