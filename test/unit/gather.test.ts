import { expect, test } from 'vitest';
import { gather } from '../../src/runtime/gather.js';

/** Calls that end when the test says so. */
function controlled(): {
  calls: { items: number[]; answer: () => void; fail: (error: Error) => void }[];
  send: (items: number[]) => Promise<number[]>;
} {
  const calls: { items: number[]; answer: () => void; fail: (error: Error) => void }[] = [];
  return {
    calls,
    send: (items) =>
      new Promise((resolve, reject) => {
        calls.push({ items, answer: () => resolve(items.map((item) => item * 10)), fail: reject });
      }),
  };
}
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(() => setImmediate(resolve)));

test('a lone item goes at once; what comes meanwhile goes together, at most maxItems', async () => {
  const { calls, send } = controlled();
  const gatherer = gather(send, { maxItems: 3 });
  const first = gatherer.submit(1);
  await turn();
  expect(calls.map(({ items }) => items)).toEqual([[1]]);

  const rest = [2, 3, 4, 5].map((item) => gatherer.submit(item));
  await turn();
  expect(calls).toHaveLength(1);
  expect(gatherer.pending).toBe(5);

  calls[0]?.answer();
  expect(await first).toBe(10);
  await turn();
  expect(calls[1]?.items).toEqual([2, 3, 4]);
  calls[1]?.answer();
  await turn();
  expect(calls[2]?.items).toEqual([5]);
  calls[2]?.answer();
  expect(await Promise.all(rest)).toEqual([20, 30, 40, 50]);
  await gatherer.idle();
  expect(gatherer.pending).toBe(0);
});

test('what is submitted in one turn of the event loop travels together', async () => {
  const { calls, send } = controlled();
  const gatherer = gather(send, { maxItems: 100 });
  const answers = [1, 2, 3].map((item) => gatherer.submit(item));
  await turn();
  expect(calls.map(({ items }) => items)).toEqual([[1, 2, 3]]);
  calls[0]?.answer();
  expect(await Promise.all(answers)).toEqual([10, 20, 30]);
});

test('a call that fails reaches its own items only', async () => {
  const { calls, send } = controlled();
  const gatherer = gather(send, { maxItems: 2 });
  const answers = [1, 2, 3].map((item) => gatherer.submit(item));
  const settled = Promise.allSettled(answers);
  await turn();
  calls[0]?.fail(new Error('lost'));
  await turn();
  calls[1]?.answer();
  expect((await settled).map(({ status }) => status)).toEqual(['rejected', 'rejected', 'fulfilled']);
  await gatherer.idle();
});

test('a call that throws at once, or answers too few, rejects and does not stop the next', async () => {
  let calls = 0;
  const gatherer = gather<number, number>(
    (items) => {
      calls += 1;
      if (calls === 1) throw new Error('at once');
      return Promise.resolve(calls === 2 ? [] : items);
    },
    { maxItems: 1 },
  );
  await expect(gatherer.submit(1)).rejects.toThrow('at once');
  await expect(gatherer.submit(2)).rejects.toThrow('0 answers to 1 items');
  expect(await gatherer.submit(3)).toBe(3);
});

test('parallel calls: never more than allowed, each answer to its own item, idle() waits for all', async () => {
  let under = 0;
  let most = 0;
  let largest = 0;
  const gatherer = gather<number, number>(
    async (items) => {
      under += 1;
      most = Math.max(most, under);
      largest = Math.max(largest, items.length);
      for (let turns = (items[0] ?? 0) % 4; turns >= 0; turns -= 1) await turn();
      under -= 1;
      return items.map((item) => item * 2);
    },
    { maxItems: 7, parallel: 3 },
  );
  const answers: Promise<number>[] = [];
  for (let item = 0; item < 500; item += 1) {
    answers.push(gatherer.submit(item));
    if (item % 13 === 0) await turn();
  }
  const idle = gatherer.idle().then(() => gatherer.pending);
  expect(await Promise.all(answers)).toEqual(answers.map((_, index) => index * 2));
  expect(await idle).toBe(0);
  expect(most).toBe(3);
  expect(largest).toBe(7);
});
