import { checkEvent, type OutboxEvent, type WriteOptions } from './event.js';
import { withTrace } from './trace.js';
import { isOutside, isPool } from './transaction.js';

/** What the statement is given: text and bytes alone, which every driver passes on alike. */
export type OutboxParam = string | Buffer | null;

/** A `pg` client inside a transaction, or anything with its `query`. */
export interface Queryable {
  query(text: string, values?: unknown[]): PromiseLike<unknown>;
}

/**
 * Sends a statement of `$1` to `$8`, each once and in this order, inside the caller's transaction, and answers its
 * rows: an array, or an object with `rows`.
 */
export type QueryFunction = (text: string, params: OutboxParam[]) => PromiseLike<unknown>;

export interface WrittenEvent {
  /** The UUID that it keeps all the way: AMQP message_id, inbox messageId. */
  readonly eventId: string;
  /** The row's id, a bigint as text. */
  readonly id: string;
}

/** A parameter is cast from text, or drivers that ask for its type (Prisma) would want a value of that type. */
const INSERT = `
  INSERT INTO outbox (event_id, type, routing_key, key, body, content_type, headers, publish_after)
  VALUES (coalesce($1::text::uuid, gen_random_uuid()), $2::text, $3::text, $4::text, $5::bytea,
          coalesce($6::text, 'application/json'), $7::text::jsonb, $8::text::timestamptz)
  RETURNING event_id::text AS "eventId", id::text AS id`;

/**
 * Writes the event into the outbox, in the transaction of `tx`: it is published if, and only if, that transaction
 * commits. The trace of the active OpenTelemetry span goes along.
 * @param tx a `pg` client in a transaction, or a function that queries in one (docs/writing-events.md)
 * @throws {InvalidEventError} with all faults of the event, before anything is sent
 * @throws {TypeError} `tx` is a pool, or a client without a transaction
 * @throws the driver's own error for what the server refuses
 */
export async function writeEvent(
  tx: Queryable | QueryFunction,
  event: OutboxEvent,
  options?: WriteOptions,
): Promise<WrittenEvent> {
  const send = queryOf(tx);
  const body = checkEvent(event, options);
  const answer = await send(INSERT, [
    event.eventId ?? null,
    event.type,
    event.routingKey ?? null,
    event.key ?? null,
    body,
    event.contentType ?? null,
    JSON.stringify({ ...withTrace(event.headers ?? {}) }),
    event.publishAfter?.toISOString() ?? null,
  ]);
  return firstRow(answer);
}

function queryOf(tx: Queryable | QueryFunction): QueryFunction {
  if (typeof tx === 'function') return tx;
  // What JavaScript may bring.
  if (typeof tx !== 'object' || (tx as unknown) === null || typeof tx.query !== 'function')
    throw new TypeError(
      'writeEvent: tx must be a pg client in a transaction, or a function (text, params) => rows',
    );
  if (isPool(tx))
    throw new TypeError(
      'writeEvent: tx is a Pool, so the event would be written outside your transaction: use the client that ' +
        'inTransaction(pool, async (tx) => …) gives, or the one of pool.connect() after BEGIN',
    );
  if (isOutside(tx as object))
    throw new TypeError(
      'writeEvent: the client is in no transaction, so the event would stand without your change: ' +
        'await BEGIN first, or use inTransaction(pool, async (tx) => …)',
    );
  return (text, params) => tx.query(text, params);
}

/** @throws {Error} the function answered something else than rows: whether the event was written is its secret */
function firstRow(answer: unknown): WrittenEvent {
  const rows: unknown =
    typeof answer === 'object' && answer !== null && 'rows' in answer ? answer.rows : answer;
  const row = (Array.isArray(rows) ? rows[0] : undefined) as Partial<WrittenEvent> | undefined;
  if (typeof row?.eventId !== 'string' || typeof row.id !== 'string')
    throw new Error(
      'writeEvent: the query function did not answer with the row that was written: it must return the rows, ' +
        'or an object with rows, of (text, params). Roll the transaction back',
    );
  return { eventId: row.eventId, id: row.id };
}
