import { describe } from '../runtime/errors.js';
import type { Log } from '../runtime/log.js';
import { isOver, pause } from '../runtime/loop.js';
import { backoffMs } from '../runtime/retry.js';

/** Open while the inbox takes messages. */
export interface Gate {
  /** Why it is shut; undefined when it is open. */
  fault(): string | undefined;
  /** Shuts it, and opens it again when the inbox takes writes. */
  shut(error: Error): void;
  /** Resolves when it is open again, after `ms`, or when the process stops, whichever is first. */
  opened(ms: number): Promise<void>;
  /** A message was recorded: the next time it is shut, the waits begin from the shortest. */
  proved(): void;
}

const BACKOFF = { firstMs: 100, capMs: 5_000 };

/**
 * Shut, no message is asked for and nothing is given back: a delivery that goes back counts against the queue's
 * delivery limit, and an outage is no failed delivery. Whether the inbox is back is found by a write of our own.
 * When that succeeds and the messages still fail, the waits go on growing.
 */
export function createGate(deps: {
  readonly proveWrite: () => Promise<void>;
  readonly onShut: () => Promise<void>;
  readonly onOpen: () => Promise<void>;
  readonly log: Log;
  readonly signal: AbortSignal;
}): Gate {
  let fault: string | undefined;
  let failures = 0;
  let reopened = new AbortController();

  const reopen = async (): Promise<void> => {
    await deps.onShut();
    while (!isOver(deps.signal)) {
      failures += 1;
      await pause(backoffMs(failures, BACKOFF, Math.random()), deps.signal);
      try {
        await deps.proveWrite();
        break;
      } catch (error) {
        fault = `the inbox takes no messages: ${describe(error)}`;
      }
    }
    if (isOver(deps.signal)) return;
    fault = undefined;
    reopened.abort();
    deps.log.info({ event: 'ingest.resumed' }, 'the inbox takes writes again, taking messages');
    await deps.onOpen();
  };

  return {
    fault: () => fault,
    shut: (error) => {
      if (fault !== undefined) return;
      fault = `the inbox takes no messages: ${describe(error)}`;
      reopened = new AbortController();
      deps.log.warn({ event: 'ingest.paused', err: error }, `${fault}; taking none until it is back`);
      void reopen();
    },
    opened: (ms) =>
      fault === undefined ? Promise.resolve() : pause(ms, AbortSignal.any([reopened.signal, deps.signal])),
    proved: () => {
      failures = 0;
    },
  };
}
