import { createHash } from 'node:crypto';
import type { EffectContext, Processor } from '../actor/index.js';
import {
  finishedBy,
  finishWith,
  holdsLease,
  LeaseLost,
  rememberStep,
  showProgress,
  type Inbox,
  type StoredDocument,
} from '../inbox/index.js';
import type { Log } from '../runtime/log.js';
import { RunOver, type Run } from './leases.js';

const MAX_STEP_BYTES = 64 * 1024;
const MAX_PROGRESS_BYTES = 16 * 1024;

export interface ContextDeps {
  readonly inbox: Inbox;
  readonly processor: Processor;
  readonly resources: unknown;
  readonly owner: string;
  readonly log: Log;
}

export interface RunContext {
  readonly context: EffectContext<unknown>;
  /** The stamp is written: nothing is left to finish. */
  committed(): boolean;
}

/** What the effect is handed. Every write is fenced by the lease; a run that is over starts and writes nothing. */
export function contextFor(run: Run, document: StoredDocument, deps: ContextDeps): RunContext {
  const { inbox, owner, processor } = deps;
  const { messageId } = document;
  const actor = processor.name;
  const signal = run.over.signal;
  const finished = new Map((document.steps ?? []).map(({ name, result }) => [name, result]));
  let commit: 'none' | 'begun' | 'done' = 'none';

  const lost = (): RunOver => {
    const over = new RunOver('lease lost');
    run.over.abort(over);
    return over;
  };
  const mustBeLive = (): void => {
    if (signal.aborted) throw signal.reason as RunOver;
    if (commit !== 'none') throw new Error('commit was called: it ends the run, nothing may follow it');
  };

  const context: EffectContext<unknown> = {
    messageId,
    type: document.type,
    ...(document.key === undefined ? {} : { key: document.key }),
    headers: document.headers,
    attempt: document.failures + 1,
    receivedAt: document.receivedAt,
    resources: deps.resources,
    signal,
    log: deps.log.child({ messageId, type: document.type, actor }),

    step: async <T>(name: string, work: (key: string) => Promise<T>): Promise<T> => {
      mustBeLive();
      if (finished.has(name)) return finished.get(name) as T;
      if (!(await holdsLease(inbox, actor, messageId, owner))) throw lost();
      const key = createHash('sha256')
        .update(JSON.stringify([actor, messageId, name]))
        .digest('hex');
      const result = asJson(await work(key), MAX_STEP_BYTES, `the result of step ${name}`);
      mustBeLive();
      if (!(await rememberStep(inbox, actor, messageId, owner, { name, key, result }))) throw lost();
      finished.set(name, result);
      return result as T;
    },

    commit: async (work) => {
      mustBeLive();
      commit = 'begun';
      run.leased = false;
      try {
        await finishWith(
          inbox,
          actor,
          messageId,
          owner,
          (session) => work(session, inbox.db),
          processor.keepBody,
        );
      } catch (error) {
        if (error instanceof LeaseLost) throw lost();
        // The answer to the commit may have been lost while the commit itself was not.
        if (!(await finishedBy(inbox, actor, messageId, owner).catch(() => false))) {
          run.leased = true;
          throw error;
        }
      }
      commit = 'done';
    },

    progress: async (value) => {
      mustBeLive();
      await showProgress(inbox, actor, messageId, owner, asJson(value, MAX_PROGRESS_BYTES, 'progress'));
    },
  };
  return { context, committed: () => commit === 'done' };
}

/** What JSON keeps of a value, so that a first run and a later one see the same. */
function asJson(value: unknown, maxBytes: number, what: string): unknown {
  const json = (JSON.stringify(value) as string | undefined) ?? 'null';
  const bytes = Buffer.byteLength(json);
  if (bytes > maxBytes)
    throw new TypeError(
      `${what} has ${bytes} bytes of JSON, more than ${maxBytes}: keep it elsewhere and return a reference`,
    );
  return JSON.parse(json) as unknown;
}
