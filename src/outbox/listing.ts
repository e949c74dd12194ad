import { condition, isoText, onMigrated, SINCE, type RowFilter, type Session } from './filter.js';

/** `waiting` was tried and is tried again later, or was written for later; the others are what they are called. */
export type RowState = 'pending' | 'waiting' | 'parked' | 'published';

/** A row without its body. Instants are ISO text in UTC with six digits. */
export interface ListedRow {
  readonly eventId: string;
  /** bigint as text. */
  readonly id: string;
  readonly type: string;
  readonly routingKey: string | null;
  readonly key: string | null;
  readonly state: RowState;
  readonly createdAt: string;
  readonly publishAfter: string | null;
  readonly publishedAt: string | null;
  readonly parkedAt: string | null;
  readonly nextAttemptAt: string | null;
  readonly attempts: number;
  readonly lastError: string | null;
  readonly bodyBytes: number;
}

export interface ShownRow extends ListedRow {
  readonly slot: number;
  readonly contentType: string;
  readonly headers: Readonly<Record<string, unknown>>;
  /** The first bytes of it, at most as many as were asked for. */
  readonly body: Buffer;
}

export interface ListQuery {
  readonly filter: RowFilter;
  readonly state?: RowState;
  readonly limit: number;
}

const OPEN = 'o.published_at IS NULL AND o.parked_at IS NULL';
const LATER = `greatest(o.publish_after, o.next_attempt_at) > statement_timestamp()`;

/** Spelt as the partial indexes are. */
const IN_STATE: Readonly<Record<RowState, string>> = {
  pending: `${OPEN} AND (${LATER}) IS NOT TRUE`,
  waiting: `${OPEN} AND (o.publish_after IS NOT NULL OR o.next_attempt_at IS NOT NULL) AND ${LATER}`,
  parked: 'o.parked_at IS NOT NULL',
  published: 'o.published_at IS NOT NULL',
};

const COLUMNS = `
  o.event_id::text AS "eventId", o.id::text AS id, o.type, o.routing_key AS "routingKey", o.key,
  CASE WHEN o.published_at IS NOT NULL THEN 'published' WHEN o.parked_at IS NOT NULL THEN 'parked'
       WHEN ${LATER} THEN 'waiting' ELSE 'pending' END AS state,
  ${isoText('o.created_at')} AS "createdAt", ${isoText('o.publish_after')} AS "publishAfter",
  ${isoText('o.published_at')} AS "publishedAt", ${isoText('o.parked_at')} AS "parkedAt",
  ${isoText('o.next_attempt_at')} AS "nextAttemptAt", o.attempts, o.last_error AS "lastError",
  octet_length(o.body) AS "bodyBytes"`;

/** The newest rows of a filter, newest first: parked and published ones by that time, else by id. */
export async function listRows(session: Session, { filter, state, limit }: ListQuery): Promise<ListedRow[]> {
  const values: unknown[] = [];
  const time = state === 'published' ? 'o.published_at' : state === 'parked' ? 'o.parked_at' : undefined;
  const where = condition(filter, values, time ?? SINCE);
  const { rows } = await onMigrated(
    session.query<ListedRow>(
      `SELECT ${COLUMNS} FROM outbox o
        WHERE ${where}${state === undefined ? '' : ` AND ${IN_STATE[state]}`}
        ORDER BY ${time === undefined ? '' : `${time} DESC, `}o.id DESC LIMIT $${values.push(limit)}`,
      values,
    ),
  );
  return rows;
}

/** One row with its headers and the first `bodyBytes` of its body; undefined when there is none. */
export async function showRow(
  session: Session,
  eventId: string,
  bodyBytes: number,
): Promise<ShownRow | undefined> {
  const { rows } = await onMigrated(
    session.query<ShownRow>(
      `SELECT ${COLUMNS}, o.slot, o.content_type AS "contentType", o.headers,
              substring(o.body FROM 1 FOR $2) AS body
         FROM outbox o WHERE o.event_id = $1::uuid`,
      [eventId, bodyBytes],
    ),
  );
  return rows[0];
}
