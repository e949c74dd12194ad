import type { Client } from 'pg';
import { DUE_AT, FREE, KEYED, PENDING, WAITING } from './lanes.js';

export interface OutboxRow {
  /** bigint as text: larger ones do not fit a number. */
  readonly id: string;
  readonly eventId: string;
  readonly type: string;
  readonly routingKey: string | null;
  readonly key: string | null;
  readonly slot: number;
  readonly body: Buffer;
  readonly contentType: string;
  readonly headers: Readonly<Record<string, unknown>>;
  /** Milliseconds since 1970, by Postgres' clock. */
  readonly createdAtMs: number;
  readonly attempts: number;
}

/** A row that may be next, without its body. */
export interface Candidate {
  /** `free` has no key, `keyed` is the first fresh row of its key, `waiting` was delayed and is due now. */
  readonly lane: 'free' | 'keyed' | 'waiting';
  readonly slot: number;
  readonly id: string;
  readonly key: string | null;
  readonly bytes: number;
  /** An earlier row of its key waits after a failure, or is parked and blocks the key. */
  readonly held: boolean;
}

export interface CandidateQuery {
  /** The slots to look into, and for each the key after which its walk goes on ('' begins anew). */
  readonly slots: readonly { readonly slot: number; readonly afterKey: string }[];
  /** How many rows, and how many keys, of each slot. */
  readonly perSlot: number;
  /** Rows in flight, left out of the lanes without keys. */
  readonly inFlight: readonly string[];
  /** A parked row holds the later rows of its key. */
  readonly parkedBlocks: boolean;
}

/** By the index outbox_holding. */
const heldBack = (key: string, id: string): string => `EXISTS (
  SELECT FROM outbox h
   WHERE h.key = ${key} AND h.id < ${id} AND h.published_at IS NULL AND h.key IS NOT NULL
     AND (h.next_attempt_at IS NOT NULL OR h.parked_at IS NOT NULL) AND (h.parked_at IS NULL OR $5))`;

/** The next key of a slot, and its first row: one step through outbox_keyed. */
const nextKey = (after: string): string => `
  SELECT o.key, o.id, octet_length(o.body) AS bytes FROM outbox o
   WHERE ${KEYED} AND o.slot = own.slot AND o.key > ${after}
   ORDER BY o.key, o.id LIMIT 1`;

const CANDIDATES = `
  WITH own AS (SELECT * FROM unnest($1::smallint[], $2::text[]) AS o(slot, after_key))
  SELECT 'free' AS lane, f.slot, f.id::text, f.key, f.bytes, false AS held
    FROM own CROSS JOIN LATERAL (
      SELECT o.slot, o.id, o.key, octet_length(o.body) AS bytes FROM outbox o
       WHERE ${FREE} AND o.slot = own.slot
         AND o.id NOT IN (SELECT unnest($4::bigint[]))
       ORDER BY o.id LIMIT $3) AS f
  UNION ALL
  SELECT 'waiting', w.slot, w.id::text, w.key, w.bytes, w.held
    FROM own CROSS JOIN LATERAL (
      SELECT o.slot, o.id, o.key, octet_length(o.body) AS bytes,
             o.key IS NOT NULL AND ${heldBack('o.key', 'o.id')} AS held
        FROM outbox o
       WHERE ${WAITING} AND o.slot = own.slot AND ${DUE_AT} <= statement_timestamp()
         AND o.id NOT IN (SELECT unnest($4::bigint[]))
       ORDER BY ${DUE_AT} LIMIT $3) AS w
  UNION ALL
  SELECT 'keyed', k.slot, k.id::text, k.key, k.bytes, k.held
    FROM own CROSS JOIN LATERAL (
      WITH RECURSIVE walk AS (
        (SELECT n.key, n.id, n.bytes, 1 AS step FROM (${nextKey('own.after_key')}) AS n)
        UNION ALL
        SELECT n.key, n.id, n.bytes, walk.step + 1 FROM walk CROSS JOIN LATERAL (${nextKey('walk.key')}) AS n
         WHERE walk.step < $3)
      SELECT own.slot, walk.id, walk.key, walk.bytes, ${heldBack('walk.key', 'walk.id')} AS held FROM walk) AS k`;

/**
 * The rows that may be published next: of each slot the oldest without a key, those whose delay is over, and the first
 * row of the next keys. Read through partial indexes alone, so that neither what was published nor what waits,
 * is parked or stands behind the head of its key costs anything. Never `id > last`: an id is drawn at INSERT and
 * seen at COMMIT, so the rows of a slow transaction come up below ids that were read long before.
 */
export async function listCandidates(session: Client, query: CandidateQuery): Promise<Candidate[]> {
  const { rows } = await session.query<Candidate>({
    name: 'outbox-candidates', // planned once: an idle relay asks four times a second, a busy one two hundred
    text: CANDIDATES,
    values: [
      query.slots.map(({ slot }) => slot),
      query.slots.map(({ afterKey }) => afterKey),
      query.perSlot,
      query.inFlight,
      query.parkedBlocks,
    ],
  });
  return rows;
}

/** The whole rows of these ids that are still pending, in the order of their ids. */
export async function loadRows(session: Client, ids: readonly string[]): Promise<OutboxRow[]> {
  const { rows } = await session.query<OutboxRow>({
    name: 'outbox-rows',
    // `ORDER BY id` alone would mean the answer's own column, which is text: 10 before 9.
    text: `SELECT id::text AS id, event_id::text AS "eventId", type, routing_key AS "routingKey", key, slot, body,
                  content_type AS "contentType", headers, attempts,
                  (extract(epoch FROM created_at) * 1000)::float8 AS "createdAtMs"
             FROM outbox o
            WHERE id = ANY($1::bigint[]) AND ${PENDING}
            ORDER BY o.id`,
    values: [ids],
  });
  return rows;
}
