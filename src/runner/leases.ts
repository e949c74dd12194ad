import { heartbeat, type Inbox } from '../inbox/index.js';
import { describe } from '../runtime/errors.js';
import { sparsely, type Log } from '../runtime/log.js';
import { isOver, pause } from '../runtime/loop.js';

/** Why a run is over although its effect has not ended. */
export type OverReason = 'timeout' | 'lease lost' | 'shutdown';

/** Thrown into an effect that still calls its context after its run is over. */
export class RunOver extends Error {
  override readonly name = 'RunOver';
  readonly reason: OverReason;
  constructor(reason: OverReason) {
    super(`the run is over: ${reason}`);
    this.reason = reason;
  }
}

/** One run of one message in this process. */
export interface Run {
  readonly messageId: string;
  /** Aborted with the RunOver that ended it. */
  readonly over: AbortController;
  /**
   * Its lease is to be prolonged: from the claim's answer until its end is being written. A heartbeat outside
   * of that would take it for lost, or meet its stamp in a write conflict.
   */
  leased: boolean;
  /** When its end was written although its effect had not settled, by `performance.now()`. */
  endedAt?: number;
}

export interface Leases {
  /** Undefined while an earlier run of this message has not settled here: it must not run twice at once. */
  begin(messageId: string): Run | undefined;
  /** The run of this message that has not settled here. */
  earlier(messageId: string): Run | undefined;
  /** When the effect itself has settled and the run's end is written. */
  end(run: Run): void;
  readonly running: number;
  /** Ends every run with this reason. */
  endAll(reason: OverReason): void;
}

const LOG_EVERY_MS = 5_000;

/**
 * What runs in this process, and the heartbeat that keeps its leases: one batched write each third of a lease.
 * When none succeeded for a whole lease, this process has to believe that another has taken over.
 */
export function keepLeases(
  deps: {
    readonly inbox: Inbox;
    readonly actor: string;
    readonly owner: string;
    readonly leaseMs: number;
    readonly log: Log;
  },
  signal: AbortSignal,
): Leases {
  const { inbox, actor, owner, leaseMs, log } = deps;
  const runs = new Map<string, Run>();
  const rarely = sparsely(LOG_EVERY_MS);

  const beat = async (): Promise<void> => {
    const ids = [...runs.values()]
      .filter(({ leased, over }) => leased && !over.signal.aborted)
      .map(({ messageId }) => messageId);
    if (ids.length === 0) return;
    for (const messageId of await heartbeat(inbox, actor, ids, owner, leaseMs)) {
      const run = runs.get(messageId);
      if (run?.leased !== true) continue; // finished, or being finished, since the question was put
      log.warn(
        { event: 'run.lease.lost', actor, messageId },
        'the lease is lost: the run is over, its stamp will be refused',
      );
      run.over.abort(new RunOver('lease lost'));
    }
  };
  const beatOn = async (): Promise<void> => {
    let lastBeat = performance.now();
    while (!isOver(signal)) {
      await pause(leaseMs / 3, signal);
      const began = performance.now();
      try {
        await beat();
        lastBeat = began;
      } catch (error) {
        rarely('beat', () =>
          log.warn(
            { event: 'run.heartbeat.failed', actor, err: error },
            `cannot prolong the leases: ${describe(error)}`,
          ),
        );
        if (performance.now() - lastBeat > leaseMs) endAll('lease lost');
      }
    }
  };
  const endAll = (reason: OverReason): void => {
    for (const run of runs.values()) run.over.abort(new RunOver(reason));
  };
  void beatOn();

  return {
    begin: (messageId) => {
      if (runs.has(messageId)) return undefined;
      const run: Run = { messageId, over: new AbortController(), leased: false };
      runs.set(messageId, run);
      return run;
    },
    earlier: (messageId) => runs.get(messageId),
    end: (run) => void runs.delete(run.messageId),
    get running() {
      return runs.size;
    },
    endAll,
  };
}
