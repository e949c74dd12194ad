import type pg from 'pg';
import type { Delivery } from './delivery.js';

/** Two starts at once would both find no table and both create it, so one waits for the other. */
const TABLES = `
  select pg_advisory_xact_lock(hashtextextended('examples/deliveries', 0));

  create table if not exists repository (
    full_name        text primary key,
    deliveries       bigint not null,
    last_event       text not null,
    last_delivery_id text not null,
    updated_at       timestamptz not null
  );

  create table if not exists delivery (
    id          text primary key,
    event_id    uuid not null unique,
    type        text not null,
    repository  text,
    received_at timestamptz not null default clock_timestamp()
  );
`;

/** Creates the application's own tables where they are missing; they share the database with the outbox. */
export async function migrateTables(pool: pg.Pool): Promise<void> {
  // Several statements in one query without parameters are one transaction.
  await pool.query(TABLES);
}

/**
 * Records the delivery; false when it was recorded before. While another transaction is at the same id, this
 * one waits for its end.
 */
export async function insertDelivery(
  tx: pg.PoolClient,
  { id, repository }: Delivery,
  { eventId, type }: { eventId: string; type: string },
): Promise<boolean> {
  const inserted = await tx.query(
    `insert into delivery (id, event_id, type, repository) values ($1, $2, $3, $4)
     on conflict (id) do nothing`,
    [id, eventId, type, repository],
  );
  return inserted.rowCount === 1;
}

/** Counts the delivery for its repository, which is made when it is new. */
export async function countForRepository(
  tx: pg.PoolClient,
  { id, event }: Delivery,
  repository: string,
): Promise<void> {
  await tx.query(
    `insert into repository as r (full_name, deliveries, last_event, last_delivery_id, updated_at)
     values ($1, 1, $2, $3, clock_timestamp())
     on conflict (full_name) do update set
       deliveries = r.deliveries + 1,
       last_event = excluded.last_event,
       last_delivery_id = excluded.last_delivery_id,
       updated_at = excluded.updated_at`,
    [repository, event, id],
  );
}
