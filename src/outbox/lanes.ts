/**
 * The predicates of the partial indexes in migrations/001_outbox.sql, for a table that is called `o`. Whoever asks
 * for pending rows spells them like this, or reads the whole table.
 */
export const PENDING = 'o.published_at IS NULL AND o.parked_at IS NULL';
const FRESH = `${PENDING} AND o.publish_after IS NULL AND o.next_attempt_at IS NULL`;
/** outbox_free: any order among them. */
export const FREE = `${FRESH} AND o.key IS NULL`;
/** outbox_keyed: found by slot and key. */
export const KEYED = `${FRESH} AND o.key IS NOT NULL`;
/** outbox_waiting: delayed by its writer or after a failure. */
export const WAITING = `${PENDING} AND (o.publish_after IS NOT NULL OR o.next_attempt_at IS NOT NULL)`;
/** When a waiting row is due. */
export const DUE_AT = 'greatest(o.publish_after, o.next_attempt_at)';
