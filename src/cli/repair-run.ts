import {
  beginAudit,
  repairRows,
  selectForRepair,
  type AuditEntry,
  type OperatorSession,
  type Repair,
  type RowFilter,
} from '../outbox/index.js';
import { isOver, pause } from '../runtime/loop.js';

export interface RepairRun {
  readonly session: OperatorSession;
  readonly repair: Repair;
  readonly filter: RowFilter;
  readonly audit: Omit<AuditEntry, 'filter'>;
  /** Rows a second; undefined: as fast as they go. */
  readonly perSecond?: number;
  readonly signal: AbortSignal;
  /** Told after every batch. */
  progress(changed: number): void;
}

export interface RepairResult {
  readonly changed: number;
  /** False when it was interrupted: rows may be left. */
  readonly complete: boolean;
}

/** Ids looked up at once: every look reads the whole window. */
const PAGE = 20_000;
const LARGEST_BATCH = 500;
const LOCK_NOT_AVAILABLE = '55P03';
const LOCK_TRIES = 5;

/** How many rows go together: about ten batches a second, so that an interrupt is soon heard and the pace is even. */
export function batchSize(perSecond: number | undefined): number {
  return Math.min(LARGEST_BATCH, Math.max(1, Math.ceil((perSecond ?? Infinity) / 10)));
}

/**
 * Repairs what the filter means, in the order of the ids, batch by batch, each row at most once: a row that fails again
 * meanwhile is not taken again. Every batch and its count in the audit are one transaction.
 * @throws what Postgres answers; what was changed until then stands in the audit
 */
export async function runRepair(run: RepairRun): Promise<RepairResult> {
  const { session, repair, filter, perSecond, signal } = run;
  const auditId = await beginAudit(session.client, { ...run.audit, filter });
  const size = batchSize(perSecond);
  const startedMs = performance.now();
  let changed = 0;
  let sent = 0;
  for (let afterId = '0'; ;) {
    const ids = await selectForRepair(session.client, repair, filter, afterId, PAGE);
    for (let at = 0; at < ids.length; at += size) {
      if (isOver(signal)) return { changed, complete: false };
      const batch = ids.slice(at, at + size);
      changed += await repairBatch(run, batch, auditId);
      sent += batch.length;
      run.progress(changed);
      if (perSecond !== undefined && at + size < ids.length)
        await pause(startedMs + (sent / perSecond) * 1_000 - performance.now(), signal);
    }
    afterId = ids.at(-1) ?? afterId;
    if (ids.length < PAGE) return { changed, complete: true };
  }
}

/** A relay holds a row for the moment of its mark, a migration the table for a little longer. */
async function repairBatch(
  { session, repair, filter, signal }: RepairRun,
  ids: readonly string[],
  auditId: string,
): Promise<number> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await repairRows(session.client, repair, filter, ids, auditId);
    } catch (error) {
      if ((error as { code?: string }).code !== LOCK_NOT_AVAILABLE || tries >= LOCK_TRIES || isOver(signal))
        throw error;
      await pause(500, signal);
    }
  }
}
