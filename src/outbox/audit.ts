import type { RowFilter, Session } from './filter.js';

/** What is kept of a command that changes rows by hand. */
export interface AuditEntry {
  /** The person and the machine. */
  readonly who: string;
  /** As `outbox retry`. */
  readonly command: string;
  readonly reason?: string;
  readonly filter: RowFilter;
}

/** Writes the line with 0 rows; every batch adds what it changed, in its own transaction. @returns the line's id */
export async function beginAudit(
  session: Session,
  { who, command, reason, filter }: AuditEntry,
): Promise<string> {
  const { rows } = await session.query<{ id: string }>(
    `INSERT INTO outbox_audit (who, command, reason, filter) VALUES ($1, $2, $3, $4) RETURNING id::text AS id`,
    [who, command, reason ?? null, JSON.stringify(filter)],
  );
  return (rows[0] as { id: string }).id;
}

/** Adds to the line in the statement whose CTE is called `changed`. `$1` is the line's id. */
export const NOTED = `noted AS (UPDATE outbox_audit SET rows = rows + (SELECT count(*) FROM changed) WHERE id = $1)`;
