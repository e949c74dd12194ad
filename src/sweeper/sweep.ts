import {
  bury,
  lookAtAll,
  lookLater,
  raiseGeneration,
  selectDue,
  type DueDocument,
  type Inbox,
} from '../inbox/index.js';
import type { Queues } from '../queue/index.js';
import { describe } from '../runtime/errors.js';
import type { Log } from '../runtime/log.js';
import { isOver } from '../runtime/loop.js';
import type { Probe } from '../runtime/probe.js';
import { decide, type Move, type SweepPolicy } from './decide.js';

export interface SweepDeps {
  readonly inbox: Inbox;
  readonly queues: Queues;
  readonly actors: readonly { readonly name: string; readonly attempts: number | undefined }[];
  readonly policy: SweepPolicy;
  readonly log: Log;
  readonly probe: Probe;
}

const BATCH = 500;
/** Of one actor in one sweep; the rest is due still, and comes with the next. */
const MAX_BATCHES = 20;

/** How many messages met which end. */
export type SweepResult = Partial<Record<Move['kind'] | 'full' | 'error', number>>;

/** One look at all that is due, of every actor, the longest due first. */
export async function sweep(deps: SweepDeps, signal: AbortSignal): Promise<SweepResult> {
  const result: SweepResult = {};
  await noticeLostRedis(deps);
  for (const { name, attempts } of deps.actors) {
    for (let batch = 0; batch < MAX_BATCHES && !isOver(signal); batch += 1) {
      const due = await selectDue(deps.inbox, name, BATCH);
      const outcomes = await Promise.all(due.map((document) => sweepOne(name, attempts, document, deps)));
      for (const outcome of outcomes) result[outcome] = (result[outcome] ?? 0) + 1;
      if (due.length < BATCH || outcomes.includes('full')) break;
    }
  }
  return result;
}

/**
 * A key in Redis tells a lost Redis from a quiet one: without it everything unfinished is looked at now.
 * It is set after that, so that a sweep that dies in between begins again.
 */
async function noticeLostRedis({ inbox, queues, actors, log }: SweepDeps): Promise<void> {
  if (await queues.presence()) return;
  let unfinished = 0;
  for (const { name } of actors) unfinished += await lookAtAll(inbox, name);
  log.warn(
    { event: 'sweep.redis.empty', unfinished },
    'Redis is empty: everything unfinished is looked at now',
  );
  await queues.markPresence();
}

/** One message that throws never ends the sweep for the others. */
async function sweepOne(
  actor: string,
  attempts: number | undefined,
  document: DueDocument,
  deps: SweepDeps,
): Promise<keyof SweepResult> {
  const { inbox, queues, log, policy, probe } = deps;
  const { messageId, generation, failures, traceparent } = document;
  const fields = { actor, messageId };
  const add = (ofGeneration: number, delayMs: number): Promise<boolean> =>
    queues.add(actor, {
      messageId,
      generation: ofGeneration,
      attemptsLeft: (attempts ?? 1) - failures,
      delayMs,
      ...(traceparent === undefined ? {} : { traceparent }),
    });
  try {
    const job = await queues.sight(actor, messageId, generation);
    const move = decide(document, job, attempts, inbox.now(), policy);
    switch (move.kind) {
      case 'leave':
        await lookLater(inbox, actor, [messageId], move.lookInMs);
        return 'leave';
      case 'bury':
        if (await bury(inbox, actor, document))
          log.error(
            { event: 'sweep.buried', ...fields, failures },
            'its attempts are used up: dead (failed)',
          );
        return 'bury';
      case 'replace orphan':
        await queues.remove(actor, messageId, generation);
        break;
      case 'next generation':
        if (!(await raiseGeneration(inbox, actor, document))) return 'leave'; // started or finished meanwhile
        log.warn(
          { event: 'sweep.next-generation', ...fields, job: move.was },
          `its job is ${move.was} and the message is not finished: a new job`,
        );
        break;
      case 'add':
    }
    if (!(await add(move.kind === 'next generation' ? generation + 1 : generation, move.delayMs)))
      return 'full';
    probe('sweep.enqueued', [messageId]);
    await lookLater(inbox, actor, [messageId], Math.max(policy.minAgeMs, move.delayMs));
    log.info(
      { event: 'sweep.enqueued', ...fields, move: move.kind, delayMs: move.delayMs },
      'back in the queue',
    );
    return move.kind;
  } catch (error) {
    log.warn(
      { event: 'sweep.failed', ...fields, err: error },
      `could not be swept, looked at again later: ${describe(error)}`,
    );
    await lookLater(inbox, actor, [messageId], policy.minAgeMs).catch(() => undefined);
    return 'error';
  }
}
