import { expect, test } from 'vitest';
import { bounded, pause, TimeoutError } from '../../src/runtime/loop.js';

test('a pause ends with its signal, before or during it, and leaves no listener', async () => {
  await pause(60_000, AbortSignal.abort());
  const stopping = new AbortController();
  const waiting = pause(60_000, stopping.signal);
  stopping.abort();
  await waiting;
  await pause(1);
  const long = new AbortController();
  for (let i = 0; i < 50; i += 1) await pause(0, long.signal); // Node warns above 10 listeners
});

test('bounded: the answer, the rejection, or what took too long', async () => {
  await expect(bounded('x', 1_000, Promise.resolve(5))).resolves.toBe(5);
  await expect(bounded('x', 1_000, Promise.reject(new Error('own')))).rejects.toThrow('own');
  const late = bounded('asking', 5, new Promise(() => undefined));
  await expect(late).rejects.toThrow('asking timed out after 5 ms');
  await expect(late).rejects.toBeInstanceOf(TimeoutError);
});

test('a promise that rejects after its limit ends nothing', async () => {
  let reject: (error: Error) => void = () => undefined;
  const never = new Promise<never>((_, no) => {
    reject = no;
  });
  await expect(bounded('x', 1, never)).rejects.toBeInstanceOf(TimeoutError);
  reject(new Error('late')); // vitest fails the run on an unhandled rejection
  await pause(1);
});
