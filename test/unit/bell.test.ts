import { expect, test } from 'vitest';
import { createBell } from '../../src/runtime/bell.js';

test('a ring wakes all who wait now, and nobody later', async () => {
  const bell = createBell();
  bell.ring();
  let woken = 0;
  const first = bell.wait(60_000).then(() => (woken += 1));
  const second = bell.wait(60_000).then(() => (woken += 1));
  expect(woken).toBe(0);
  bell.ring();
  await Promise.all([first, second]);
  expect(woken).toBe(2);
});

test('who is not woken goes on by itself', async () => {
  const began = performance.now();
  await createBell().wait(20);
  expect(performance.now() - began).toBeGreaterThanOrEqual(19);
});
