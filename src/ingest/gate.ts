import { describe } from '../runtime/errors.js';
import type { Log } from '../runtime/log.js';
import { isOver, pause } from '../runtime/loop.js';
import { backoffMs } from '../runtime/retry.js';

/** Open while the inbox takes messages. */
export interface Gate {
  /** Why it is shut; undefined when it is open. */
  fault(): string | undefined;
  /** Shuts it, and opens it again when the inbox answers. */
  shut(error: Error): void;
}

const BACKOFF = { firstMs: 100, capMs: 5_000 };

/**
 * Shut, no message is asked for; whether the inbox is back is found by asking it, not by deliveries: each
 * delivery that is given back counts against the queue's delivery limit.
 */
export function createGate(deps: {
  readonly ping: () => Promise<void>;
  readonly onShut: () => Promise<void>;
  readonly onOpen: () => Promise<void>;
  readonly log: Log;
  readonly signal: AbortSignal;
}): Gate {
  let fault: string | undefined;

  const reopen = async (): Promise<void> => {
    await deps.onShut();
    for (let failures = 1; !isOver(deps.signal); failures += 1) {
      await pause(backoffMs(failures, BACKOFF, Math.random()), deps.signal);
      try {
        await deps.ping();
        break;
      } catch (error) {
        fault = `the inbox cannot be reached: ${describe(error)}`;
      }
    }
    if (isOver(deps.signal)) return;
    fault = undefined;
    deps.log.info({ event: 'ingest.resumed' }, 'the inbox is back, taking messages again');
    await deps.onOpen();
  };

  return {
    fault: () => fault,
    shut: (error) => {
      if (fault !== undefined) return;
      fault = `the inbox cannot be reached: ${describe(error)}`;
      deps.log.warn({ event: 'ingest.paused', err: error }, `${fault}; taking no messages until it is back`);
      void reopen();
    },
  };
}
