import { StoppedEarly } from './errors.js';

/** Waits, or ends at once when the signal aborts. Never rejects. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) {
      resolve();
      return;
    }
    const done = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener('abort', done, { once: true });
  });
}

/** The promise's own end, or a rejection that names what took longer than `ms`. */
export async function bounded<T>(what: string, ms: number, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(new TimeoutError(`${what} timed out after ${ms} ms`));
    }, ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * The promise's own end, for what a start waits for.
 * @throws {StoppedEarly} when `signal` aborts first
 */
export async function unlessStopped<T>(signal: AbortSignal, what: string, promise: Promise<T>): Promise<T> {
  let stop: () => void = () => undefined;
  const stopped = new Promise<never>((_, reject) => {
    stop = () => reject(new StoppedEarly(`stopped before ${what}`));
    signal.addEventListener('abort', stop, { once: true });
    if (signal.aborted) stop();
  });
  try {
    return await Promise.race([promise, stopped]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

export class TimeoutError extends Error {
  override readonly name = 'TimeoutError';
}

/** Asked as a call, since the compiler takes a property that was false for false for ever. */
export function isOver(signal: AbortSignal): boolean {
  return signal.aborted;
}
