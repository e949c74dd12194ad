import type { Session } from './filter.js';

/**
 * Something that keeps vacuum from removing dead rows: every claim then reads past all rows that died since. One
 * forgotten transaction anywhere in the database is enough.
 */
export interface VacuumHolder {
  readonly kind: 'transaction' | 'prepared' | 'slot' | 'standby';
  /** The process; null for a prepared transaction, and for a slot that nobody reads. */
  readonly pid: number | null;
  /** application_name, the prepared transaction's gid, or the slot's name. */
  readonly name: string | null;
  /** As `idle in transaction`; null where this role may not see it (grant pg_monitor). */
  readonly state: string | null;
  /** Transactions that began since: how much of the dead it holds. */
  readonly transactions: number;
  /** How long its transaction is open, in seconds; null where that is not known. */
  readonly seconds: number | null;
  /** When its last statement began, ISO in UTC; null where that is not known. */
  readonly queryStart: string | null;
  /** The start of its last statement, on one line; null where this role may not see it. */
  readonly query: string | null;
}

/**
 * Everything that holds back vacuum of this database's tables, the one that holds the most first. Workers of autovacuum
 * and this session itself hold nothing.
 */
export async function readVacuumHolders(session: Session): Promise<VacuumHolder[]> {
  const { rows } = await session.query<VacuumHolder>(
    `SELECT kind, pid, name, state, transactions::float8 AS transactions, seconds, query,
            to_char(query_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS "queryStart"
       FROM (
         SELECT CASE backend_type WHEN 'walsender' THEN 'standby' ELSE 'transaction' END AS kind,
                pid, nullif(application_name, '') AS name, state,
                greatest(age(backend_xmin), age(backend_xid)) AS transactions,
                extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds,
                left(regexp_replace(query, '\\s+', ' ', 'g'), 120) AS query, query_start
           FROM pg_stat_activity
          WHERE pid <> pg_backend_pid() AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
            AND backend_type <> 'autovacuum worker'
            AND (datname = current_database() OR backend_type = 'walsender')
         UNION ALL
         SELECT 'prepared', NULL, gid, 'prepared', age(transaction),
                extract(epoch FROM clock_timestamp() - prepared)::float8, NULL, prepared
           FROM pg_prepared_xacts WHERE database = current_database()
         UNION ALL
         SELECT 'slot', active_pid, slot_name::text, CASE WHEN active THEN 'active' ELSE 'inactive' END,
                age(xmin), NULL, NULL, NULL
           FROM pg_replication_slots WHERE xmin IS NOT NULL
       ) AS holder
      ORDER BY holder.transactions DESC, seconds DESC NULLS LAST`,
  );
  return rows;
}
