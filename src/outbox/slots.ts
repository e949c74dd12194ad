import type { Client } from 'pg';

/** The number of ordering slots, for ever (migrations/001_outbox.sql). */
export const SLOTS = 32;

/** Of the advisory locks: any fixed number of our own. The second number is the slot, or the relays' own. */
const LOCK_CLASS = 746_564;
const RELAYS = 1_000;

/**
 * What a session needs before it may own slots. A relay asks at least every two seconds: one that is silent for six is
 * gone, frozen or cut off, and the server ends its session, which frees its slots. Keepalives and the user timeout
 * do the same for a host that vanished while an answer was on its way to it.
 */
const OWNER_SETTINGS = `
  SET idle_session_timeout = '6s'; SET tcp_keepalives_idle = 3; SET tcp_keepalives_interval = 2;
  SET tcp_keepalives_count = 2; SET tcp_user_timeout = '8s'`;

/** Counts this session among the relays that share the slots, until it leaves or ends. */
export async function joinRelays(session: Client): Promise<void> {
  await session.query(OWNER_SETTINGS);
  await session.query('SELECT pg_advisory_lock_shared($1, $2)', [LOCK_CLASS, RELAYS]);
}

/** Gives back every slot and the place among the relays. */
export async function leaveRelays(session: Client): Promise<void> {
  await session.query('SELECT pg_advisory_unlock_all()');
}

/** How many sessions share the slots now. */
export async function countRelays(session: Client): Promise<number> {
  const { rows } = await session.query<{ count: number }>({
    name: 'outbox-relays',
    text: `SELECT count(*)::int AS count FROM pg_locks
            WHERE locktype = 'advisory' AND granted AND classid = $1 AND objid = $2 AND objsubid = 2
              AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
    values: [LOCK_CLASS, RELAYS],
  });
  return rows[0]?.count ?? 0;
}

/** Takes up to `count` of the slots in `among` that nobody owns. The lock dies with the session, as does the right to mark. */
export async function takeSlots(session: Client, among: readonly number[], count: number): Promise<number[]> {
  const { rows } = await session.query<{ slot: number }>(
    'SELECT slot FROM unnest($1::int[]) AS slot WHERE pg_try_advisory_lock($2, slot) LIMIT $3',
    [among, LOCK_CLASS, count],
  );
  return rows.map(({ slot }) => slot);
}

export async function releaseSlots(session: Client, slots: readonly number[]): Promise<void> {
  await session.query('SELECT pg_advisory_unlock($1, slot) FROM unnest($2::int[]) AS slot', [
    LOCK_CLASS,
    slots,
  ]);
}
