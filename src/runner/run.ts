import type { Processor } from '../actor/index.js';
import {
  fail,
  handBack,
  type Claim,
  type ClaimRequest,
  type FailureEnd,
  type Inbox,
  type StoredDocument,
} from '../inbox/index.js';
import type { Disposition, WorkItem } from '../queue/index.js';
import { describe, toError } from '../runtime/errors.js';
import type { Gatherer } from '../runtime/gather.js';
import { sparsely, type Log } from '../runtime/log.js';
import { pause } from '../runtime/loop.js';
import type { Probe } from '../runtime/probe.js';
import { contextFor } from './context.js';
import { afterFailure, lastErrorOf, loggable } from './decide.js';
import { RunOver, type Leases, type Run } from './leases.js';
import { validate } from './validate.js';

export interface RunnerDeps {
  readonly processor: Processor;
  readonly resources: unknown;
  readonly inbox: Inbox;
  readonly owner: string;
  readonly leaseMs: number;
  readonly leases: Leases;
  readonly claims: Gatherer<ClaimRequest, Claim>;
  readonly finishes: Gatherer<string, boolean>;
  readonly maxBodyBytes: number;
  readonly log: Log;
  readonly probe: Probe;
  readonly random: () => number;
  /** Ends the process as failed. */
  readonly fail: (error: Error) => void;
}

const STORE_RETRY_MS = 500;
const HEED_MS = 1_000;
const LOG_EVERY_MS = 5_000;

/** Runs jobs of one actor: claim, validate, effect, finish. Never rejects. */
export function createRunner(deps: RunnerDeps): (item: WorkItem) => Promise<Disposition> {
  const { log, leases, processor } = deps;
  const actor = processor.name;
  const rarely = sparsely(LOG_EVERY_MS);

  /** A fault of our own stores is nobody's attempt: the job comes back by itself. */
  const storeFault = (messageId: string, error: unknown): Disposition => {
    rarely('store', () =>
      log.warn(
        { event: 'run.store.failed', actor, messageId, err: error },
        `the inbox does not answer, later again: ${describe(error)}`,
      ),
    );
    return { kind: 'later', inMs: STORE_RETRY_MS * (1 + deps.random()) };
  };

  const runClaimed = async (run: Run, messageId: string, generation: number): Promise<Disposition> => {
    let claimed: Claim;
    try {
      claimed = await deps.claims.submit({ messageId, generation });
    } catch (error) {
      return storeFault(messageId, error);
    }
    switch (claimed.kind) {
      case 'mine':
        run.leased = true;
        deps.probe('run.claimed', [messageId]);
        return runEffect(run, claimed.document, deps);
      case 'leased':
      case 'early':
        return { kind: 'later', inMs: claimed.remainingMs };
      case 'absent':
        log.warn(
          { event: 'run.absent', actor, messageId },
          'there is no such message in the inbox: its job ends',
        );
        return { kind: 'done' };
      case 'final':
      case 'stale':
        return { kind: 'done' };
    }
  };

  /**
   * Its job has come again while an effect of it still runs here, though that run is over: it may not run beside
   * itself. An effect that heeds neither its signal nor its time limit is got rid of by a restart alone.
   */
  const whileUnsettled = (messageId: string): Disposition => {
    const endedAt = leases.earlier(messageId)?.endedAt;
    const overdueMs = endedAt === undefined ? 0 : performance.now() - endedAt;
    const text = `an effect of ${messageId} has not ended ${Math.round(overdueMs)} ms after its run was over`;
    if (overdueMs > Math.max(processor.timeoutMs, deps.leaseMs))
      deps.fail(new Error(`${text}: only a restart ends it`));
    else if (endedAt !== undefined)
      rarely(messageId, () => log.warn({ event: 'run.unsettled', actor, messageId }, text));
    return { kind: 'later', inMs: STORE_RETRY_MS };
  };

  return async ({ messageId, generation, jobId }) => {
    if (messageId === undefined) {
      log.warn(
        { event: 'run.job.empty', actor, jobId },
        'Redis lost the data of a job; the sweeper makes it anew',
      );
      return { kind: 'done' };
    }
    const run = leases.begin(messageId);
    if (run === undefined) return whileUnsettled(messageId);
    try {
      return await runClaimed(run, messageId, generation);
    } catch (error) {
      return storeFault(messageId, error);
    } finally {
      // Known until the effect has settled and its end is written, whichever is later: a job that stalled comes
      // again in between, and its claim would find our own lease.
      if (effectsUnderWay.has(run)) run.endedAt = performance.now();
      else leases.end(run);
    }
  };
}

/** Runs whose effect has not settled. */
const effectsUnderWay = new WeakSet<Run>();

async function runEffect(run: Run, document: StoredDocument, deps: RunnerDeps): Promise<Disposition> {
  const { processor, log, probe, leases } = deps;
  const { messageId } = document;
  const fields = { actor: processor.name, messageId, type: document.type, attempt: document.failures + 1 };
  const began = performance.now();

  const payload = await validate(document, deps);
  if ('fault' in payload) {
    const error = Object.assign(new Error(payload.fault), { name: 'InvalidBody' });
    return recordFailure(document, error, { dead: 'invalid' }, deps);
  }
  // The process began to stop while the claim was under way.
  if (run.over.signal.aborted) return endUnfinished(run, document, run.over.signal.reason, deps);
  const { context, committed } = contextFor(run, document, deps);
  const timer = setTimeout(() => run.over.abort(new RunOver('timeout')), processor.timeoutMs);
  effectsUnderWay.add(run);
  // Inside an async function: an effect that throws before its first await rejects like any other.
  const effect = (async () => processor.effect(payload.value, context))();
  const settled = effect.then(
    () => undefined,
    () => undefined,
  );
  void settled.then(() => {
    effectsUnderWay.delete(run);
    if (run.endedAt !== undefined) leases.end(run);
  });
  try {
    await Promise.race([effect, whenOver(run)]);
  } catch (thrown) {
    // A moment for an effect that heeds its signal: given back while it still runs, the message would run
    // elsewhere beside it, and its shared resources would be closed under it.
    if (thrown instanceof RunOver && thrown.reason === 'shutdown')
      await Promise.race([settled, pause(Math.min(HEED_MS, deps.leaseMs / 3))]);
    if (!committed()) return await endUnfinished(run, document, thrown, deps);
    log.warn(
      { event: 'run.threw.after.commit', ...fields, err: loggable(toError(thrown)) },
      'the effect threw after its commit: the commit stands',
    );
  } finally {
    clearTimeout(timer);
  }
  run.leased = false;
  probe('run.effect', [messageId]);
  if (!committed() && !(await finish(messageId, run, deps))) {
    log.warn(
      { event: 'run.stamp.refused', ...fields },
      'the lease was lost before the stamp: another run decides',
    );
    return { kind: 'later', inMs: STORE_RETRY_MS };
  }
  probe('run.finished', [messageId]);
  log.info(
    { event: 'run.processed', ...fields, durationMs: Math.round(performance.now() - began) },
    'processed',
  );
  return { kind: 'done' };
}

/** Rejects when the run is over for a reason that does not wait for the effect to agree. */
function whenOver({ over }: Run): Promise<never> {
  return new Promise((_, reject) => {
    if (over.signal.aborted) reject(over.signal.reason as RunOver);
    over.signal.addEventListener('abort', () => reject(over.signal.reason as RunOver), { once: true });
  });
}

/** The effect did not end well, or its run was ended. */
async function endUnfinished(
  run: Run,
  document: StoredDocument,
  thrown: unknown,
  deps: RunnerDeps,
): Promise<Disposition> {
  const over = run.over.signal.aborted ? (run.over.signal.reason as RunOver) : undefined;
  const { processor, inbox, owner, log, probe } = deps;
  const { messageId } = document;
  run.leased = false;
  if (over?.reason === 'lease lost') return { kind: 'later', inMs: STORE_RETRY_MS };
  if (over?.reason === 'shutdown') {
    await handBack(inbox, processor.name, messageId, owner);
    probe('run.handedback', [messageId]);
    log.info(
      { event: 'run.handed-back', actor: processor.name, messageId },
      'given back for another process: this one stops',
    );
    return { kind: 'hand back' };
  }
  const error =
    over?.reason === 'timeout'
      ? Object.assign(new Error(`the effect took longer than timeoutMs = ${processor.timeoutMs}`), {
          name: 'EffectTimeout',
        })
      : thrown;
  return recordFailure(
    document,
    error,
    afterFailure(document.failures, processor.attempts, processor.backoff, deps.random()),
    deps,
  );
}

async function recordFailure(
  document: StoredDocument,
  thrown: unknown,
  end: FailureEnd,
  deps: RunnerDeps,
): Promise<Disposition> {
  const { processor, inbox, owner, log, probe } = deps;
  const { messageId, type, failures } = document;
  const error = loggable(toError(thrown));
  const lastError = lastErrorOf(error, processor.name);
  const fields = { actor: processor.name, messageId, type, attempt: failures + 1, err: error };
  if (!(await fail(inbox, processor.name, messageId, owner, lastError, end))) {
    log.warn(
      { event: 'run.failure.refused', ...fields },
      'the lease was lost before the failure was recorded: another run decides',
    );
    return { kind: 'later', inMs: STORE_RETRY_MS };
  }
  probe('run.failed', [messageId]);
  if ('dead' in end) {
    log.error(
      { event: 'run.dead', ...fields, reason: end.dead, owner: processor.owner },
      `dead (${end.dead}): ${processor.owner} has to look at it`,
    );
    return { kind: 'dead', error };
  }
  log.warn(
    { event: 'run.failed', ...fields, retryInMs: end.retryInMs },
    `failed, again in ${end.retryInMs} ms`,
  );
  return { kind: 'retry', inMs: end.retryInMs, error };
}

/** The effect is done: stamp it, as long as the lease may still be ours. */
async function finish(
  messageId: string,
  run: Run,
  { finishes, leaseMs, log, processor }: RunnerDeps,
): Promise<boolean> {
  const deadline = performance.now() + leaseMs;
  run.leased = false; // a heartbeat that crosses the stamp would take it for a lost lease
  for (;;) {
    try {
      return await finishes.submit(messageId);
    } catch (error) {
      if (performance.now() > deadline) throw error;
      log.warn(
        { event: 'run.stamp.failed', actor: processor.name, messageId, err: error },
        `cannot stamp, trying again: ${describe(error)}`,
      );
      await pause(STORE_RETRY_MS, run.over.signal);
      if (run.over.signal.aborted) return false;
    }
  }
}
