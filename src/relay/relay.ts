import type { Outcome, Publisher } from '../broker/index.js';
import {
  markPublished,
  recordFailures,
  selectPending,
  type OutboxRow,
  type OutboxSession,
  type RowFailure,
} from '../outbox/index.js';
import { describe } from '../runtime/errors.js';
import type { Log } from '../runtime/log.js';
import { isOver, pause } from '../runtime/loop.js';
import type { Probe } from '../runtime/probe.js';
import { judge, toPublication, unsendable, type RelayPolicy } from './decide.js';

export interface RelayDeps {
  readonly session: OutboxSession;
  readonly publisher: Publisher;
  /** Why nothing may be claimed now (no channel, a blocked broker); undefined when it may. */
  readonly held: () => string | undefined;
  readonly policy: RelayPolicy;
  readonly window: number;
  readonly pollMs: number;
  readonly log: Log;
  readonly probe: Probe;
  readonly random: () => number;
}

const MARK_RETRY_MS = 200;
/** The shortest wait between two looks; doubles up to `pollMs` while there is nothing to do. */
const SHORTEST_POLL_MS = 5;

/**
 * Relays as the owner of the outbox, until `signal` aborts or the session is gone: select, publish within the
 * window, mark what was confirmed, next. Nothing is claimed while a mark is owed.
 * @throws when Postgres refuses: the caller drops the session and becomes owner anew
 */
export async function relayRows(deps: RelayDeps, signal: AbortSignal): Promise<void> {
  const over = AbortSignal.any([signal, deps.session.gone]);
  const suspects = new Set<string>();
  let idleMs = SHORTEST_POLL_MS;
  while (!over.aborted) {
    if (deps.held() !== undefined) {
      await pause(deps.pollMs, over);
      continue;
    }
    const rows = await selectPending(deps.session.client, deps.window);
    if (rows.length === 0) {
      await pause(idleMs, over);
      idleMs = Math.min(idleMs * 2, deps.pollMs);
      continue;
    }
    idleMs = SHORTEST_POLL_MS;
    deps.probe(
      'relay.claimed',
      rows.map(({ eventId }) => eventId),
    );
    for (const batch of batches(rows, suspects)) {
      await relayBatch(batch, deps, suspects, over);
      if (isOver(over)) return;
    }
  }
}

/** Suspects go one by one, each a batch of its own; the rest together, first. */
function batches(rows: readonly OutboxRow[], suspects: ReadonlySet<string>): OutboxRow[][] {
  const [innocent, suspected] = [
    rows.filter(({ id }) => !suspects.has(id)),
    rows.filter(({ id }) => suspects.has(id)),
  ];
  return [...(innocent.length > 0 ? [innocent] : []), ...suspected.map((row) => [row])];
}

async function relayBatch(
  batch: readonly OutboxRow[],
  deps: RelayDeps,
  suspects: Set<string>,
  over: AbortSignal,
): Promise<void> {
  const outcomes = await Promise.all(batch.map((row) => send(row, deps)));
  const confirmed: OutboxRow[] = [];
  const failures: RowFailure[] = [];
  batch.forEach((row, index) => {
    const verdict = judge(row, outcomes[index] as Outcome, batch.length === 1, deps.policy, deps.random());
    if (verdict.kind === 'suspect') suspects.add(row.id);
    else if (verdict.kind !== 'again') suspects.delete(row.id);
    if (verdict.kind === 'mark') confirmed.push(row);
    if (verdict.kind === 'failure') {
      failures.push(verdict.failure);
      logFailure(row, verdict.failure, deps.log);
    }
  });
  const ids = confirmed.map(({ eventId }) => eventId);
  if (ids.length > 0) deps.probe('relay.confirmed', ids);
  await settle(confirmed, failures, deps, over);
  if (ids.length > 0) deps.probe('relay.marked', ids);
  // Without a single answer the channel is gone: let it come back before anything is claimed again.
  if (outcomes.every(({ kind }) => kind === 'not-sent' || kind === 'unknown')) await pause(deps.pollMs, over);
}

function send(row: OutboxRow, { policy, publisher }: RelayDeps): Promise<Outcome> {
  const detail = unsendable(row, policy);
  if (detail !== undefined) return Promise.resolve({ kind: 'refused', detail });
  return publisher.publish(toPublication(row));
}

/**
 * The confirmed ids stay here until they are marked: only the mark is tried again, nothing is published
 * meanwhile. A lost or read-only session ends the loop; the ids are then published once more by the next owner.
 */
async function settle(
  confirmed: readonly OutboxRow[],
  failures: readonly RowFailure[],
  deps: RelayDeps,
  over: AbortSignal,
): Promise<void> {
  for (;;) {
    try {
      if (confirmed.length > 0)
        await markPublished(
          deps.session.client,
          confirmed.map(({ id }) => id),
        );
      if (failures.length > 0) await recordFailures(deps.session.client, failures);
      return;
    } catch (error) {
      if (deps.session.gone.aborted || !isBusy(error) || over.aborted) throw error;
      deps.log.warn(
        { event: 'relay.mark.failed', err: error, rows: confirmed.length },
        `cannot mark, trying again: ${describe(error)}`,
      );
      await pause(MARK_RETRY_MS, over);
    }
  }
}

/** A lock or a statement that took too long: the session is whole, and the same statement can succeed later. */
function isBusy(error: unknown): boolean {
  const { code } = error as { code?: string };
  return code === '55P03' || code === '57014' || code === '40P01' || code === '40001';
}

function logFailure(row: OutboxRow, failure: RowFailure, log: Log): void {
  const fields = { messageId: row.eventId, type: row.type, attempt: row.attempts + 1, reason: failure.error };
  if (failure.retryInMs === null)
    log.error(
      { event: 'relay.parked', ...fields },
      'the row is parked: it is not published until someone acts',
    );
  else
    log.warn(
      { event: 'relay.deferred', ...fields, retryInMs: failure.retryInMs },
      'not routed or not stored; later again',
    );
}
