import { onMigrated, type Session } from './filter.js';
import { DUE_AT, FREE, KEYED, WAITING } from './lanes.js';

/** Rows that are not published, by what they wait for. */
export interface Backlog {
  /** May be published now. */
  readonly due: number;
  /** Tried, and tried again later. */
  readonly retrying: number;
  /** Written for later. */
  readonly delayed: number;
  /** There are more than were counted: the numbers above are the least that there are. */
  readonly andMore: boolean;
  /** How long the oldest row that is due or retrying could have been published, in seconds; null without one. */
  readonly oldestSeconds: number | null;
  readonly parked: number;
  /** Parked rows by the class of their `last_error`, most first. */
  readonly parkedBy: readonly { readonly reason: ParkedReason; readonly count: number }[];
  /** At most 100,000. */
  readonly publishedLastMinute: number;
}

export type ParkedReason =
  /** No queue was bound for its routing key. */
  | 'unroutable'
  /** The broker would not store it. */
  | 'nacked'
  | 'too-large'
  | 'headers'
  /** The broker closed the channel over it. */
  | 'channel-closed'
  | 'other';

const REASON = `
  CASE WHEN o.last_error LIKE '%NO\\_ROUTE%' THEN 'unroutable'
       WHEN o.last_error LIKE '%(nack)%' THEN 'nacked'
       WHEN o.last_error LIKE '%MAX\\_BODY\\_BYTES%' THEN 'too-large'
       WHEN o.last_error LIKE '%closed the channel%' THEN 'channel-closed'
       WHEN o.last_error LIKE '%header%' THEN 'headers'
       ELSE 'other' END`;

/** Rows that are counted in each index: a million would take longer than a person waits, and a number is a number. */
const MOST_COUNTED = 100_000;
/** Age by when a row could have been published: one that was delayed for a week is not a week late. */
const DUE_SINCE = 'greatest(o.created_at, o.publish_after)';
const LATER = `${DUE_AT} > statement_timestamp()`;

/** One of the three lanes of pending rows, read in the order of its index. */
const lane = (where: string, order: string, later: string): string => `
  SELECT count(*) AS count, count(*) FILTER (WHERE later) AS later, count(*) FILTER (WHERE delayed) AS delayed,
         min(due_since) FILTER (WHERE delayed IS NOT TRUE) AS oldest
    FROM (SELECT ${later} AS later, ${later} AND o.next_attempt_at IS NULL AS delayed, ${DUE_SINCE} AS due_since
            FROM outbox o WHERE ${where} ORDER BY ${order} LIMIT ${MOST_COUNTED}) AS o`;

const BACKLOG = `
  SELECT (sum(count) - sum(later))::int AS due, (sum(later) - sum(delayed))::int AS retrying,
         sum(delayed)::int AS delayed, coalesce(bool_or(count >= ${MOST_COUNTED}), false) AS "andMore",
         greatest(0, extract(epoch FROM clock_timestamp() - min(oldest)))::float8 AS "oldestSeconds",
         bool_or(oldest IS NOT NULL) AS "hasOldest",
         (SELECT count(*)::int FROM (
            SELECT FROM outbox o WHERE o.published_at > statement_timestamp() - interval '1 minute'
             LIMIT ${MOST_COUNTED}) AS p) AS "publishedLastMinute"
    FROM (${[
      lane(FREE, 'o.slot, o.id', 'false'),
      lane(KEYED, 'o.slot, o.key, o.id', 'false'),
      lane(WAITING, `o.slot, ${DUE_AT}`, LATER),
      // The first of each slot, for the age, where not all are counted.
      `SELECT 0, 0, 0, min(head.since)
         FROM generate_series(0, 31) AS own(slot) CROSS JOIN LATERAL (
           SELECT ${DUE_SINCE} AS since FROM outbox o WHERE ${FREE} AND o.slot = own.slot ORDER BY o.id LIMIT 1) AS head`,
    ].join(' UNION ALL ')}) AS lanes`;

/**
 * How many rows stand where, by the partial indexes: what was published long ago costs nothing, and a backlog of millions not
 * more than one of a hundred thousand.
 * @throws {ConfigurationError} when the outbox is not migrated
 */
export async function readBacklog(session: Session): Promise<Backlog> {
  const { rows } = await onMigrated(
    session.query<Omit<Backlog, 'parked' | 'parkedBy'> & { hasOldest: boolean | null }>(BACKLOG),
  );
  const { hasOldest, ...counted } = rows[0] as Omit<Backlog, 'parked' | 'parkedBy'> & {
    hasOldest: boolean | null;
  };
  const parked = await session.query<Backlog['parkedBy'][number]>(
    `SELECT ${REASON} AS reason, count(*)::int AS count FROM outbox o WHERE o.parked_at IS NOT NULL
      GROUP BY 1 ORDER BY 2 DESC, 1`,
  );
  return {
    ...counted,
    // greatest() leaves nulls out: without a row the age would be 0.
    oldestSeconds: hasOldest === true ? counted.oldestSeconds : null,
    parked: parked.rows.reduce((sum, { count }) => sum + count, 0),
    parkedBy: parked.rows,
  };
}

/** A session that shares the ordering slots. */
export interface SlotOwner {
  readonly pid: number;
  /** The instance's name; null where this role may not see it. */
  readonly name: string | null;
  readonly address: string | null;
  readonly slots: readonly number[];
}

/** Of the advisory locks in slots.ts. */
const LOCK_CLASS = 746_564;
const RELAYS = 1_000;

/** Which relay sessions hold which ordering slots, by the locks that Postgres knows. */
export async function readSlotOwners(session: Session): Promise<SlotOwner[]> {
  const { rows } = await session.query<SlotOwner>(
    `SELECT l.pid, nullif(a.application_name, '') AS name, host(a.client_addr) AS address,
            coalesce(array_agg(l.objid::int ORDER BY l.objid::int) FILTER (WHERE l.objid < $2), '{}') AS slots
       FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
      WHERE l.locktype = 'advisory' AND l.granted AND l.classid = $1 AND l.objsubid = 2
        AND (l.objid < $2 OR l.objid = $3)
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      GROUP BY l.pid, a.application_name, a.client_addr ORDER BY 2, 1`,
    [LOCK_CLASS, 32, RELAYS],
  );
  return rows;
}
