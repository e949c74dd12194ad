import type { Pool, PoolClient, QueryResult } from 'pg';

/** What a transaction offers: a `pg` client, or anything with its `query`. */
export interface Queryable {
  query(text: string, values?: unknown[]): Promise<Pick<QueryResult, 'rows' | 'rowCount'>>;
}

export interface OutboxEvent {
  /** What happened, as `order.placed`; also the routing key unless `routingKey` is given. At most 255 bytes. */
  readonly type: string;
  /** A Buffer is sent as it is; everything else as JSON. */
  readonly body: unknown;
  /** Events of one key keep their order. At most 1,024 bytes. Not together with `publishAfter`. */
  readonly key?: string;
  /** A UUID of your own; default: made by Postgres. */
  readonly eventId?: string;
  readonly routingKey?: string;
  /** Default `application/json`. */
  readonly contentType?: string;
  readonly headers?: Readonly<Record<string, string | number | boolean>>;
  readonly publishAfter?: Date;
}

/** Headers by which a publisher can make the broker do something else than route. */
const BROKER_HEADERS = ['CC', 'BCC'];

/**
 * Writes the event into the outbox, in the transaction of `tx`: it is published if, and only if, that
 * transaction commits.
 * @throws {TypeError} for what cannot be sent; the database's own error for what the table refuses
 */
export async function writeEvent(
  tx: Queryable,
  event: OutboxEvent,
): Promise<{ eventId: string; id: string }> {
  const forbidden = Object.keys(event.headers ?? {}).filter((name) => BROKER_HEADERS.includes(name));
  if (forbidden.length > 0) {
    throw new TypeError(
      `writeEvent: the headers ${forbidden.join(', ')} have a meaning for the broker; use another name`,
    );
  }
  const { rows } = await tx.query(
    `INSERT INTO outbox (event_id, type, routing_key, key, body, content_type, headers, publish_after)
     VALUES (coalesce($1::uuid, gen_random_uuid()), $2, $3, $4, $5, coalesce($6, 'application/json'), $7, $8)
     RETURNING event_id AS "eventId", id::text AS id`,
    [
      event.eventId ?? null,
      event.type,
      event.routingKey ?? null,
      event.key ?? null,
      encode(event.body),
      event.contentType ?? null,
      JSON.stringify(event.headers ?? {}),
      event.publishAfter ?? null,
    ],
  );
  return rows[0] as { eventId: string; id: string };
}

function encode(body: unknown): Buffer {
  if (Buffer.isBuffer(body)) return body;
  const json = JSON.stringify(body) as string | undefined;
  if (json === undefined)
    throw new TypeError('writeEvent: body is undefined, a function or a symbol: JSON has no such thing');
  return Buffer.from(json, 'utf8');
}

/**
 * Runs `work` in one transaction. An aborted transaction answers COMMIT with ROLLBACK and no error at all;
 * that is noticed here, since it would lose the business change and its event together in silence.
 * @throws what `work` throws (after a rollback), or an Error when the commit did not commit
 */
export async function inTransaction<T>(pool: Pool, work: (tx: PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  // A client that dies while it is checked out emits 'error', which nobody else listens to then.
  let broken: Error | undefined;
  const onError = (error: Error): void => {
    broken = error;
  };
  client.on('error', onError);
  try {
    await client.query('BEGIN');
    const result = await work(client);
    const { command } = await client.query('COMMIT');
    if (command !== 'COMMIT') {
      throw new Error(
        `the transaction was not committed (the server answered ${command}): a statement in it failed and its error was swallowed`,
      );
    }
    return result;
  } catch (error) {
    await client.query('ROLLBACK').catch((rollbackError: unknown) => {
      broken ??= rollbackError as Error; // a connection in an unknown state goes back to nobody
    });
    throw error;
  } finally {
    client.off('error', onError);
    client.release(broken);
  }
}
