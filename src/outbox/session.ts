import pg from 'pg';
import { ConfigurationError } from '../runtime/errors.js';
import { bounded } from '../runtime/loop.js';

/** SQLSTATE of a table that is not there. */
const UNDEFINED_TABLE = '42P01';

/**
 * No scan but by index: before the first ANALYZE the planner expects a handful of pending rows, and would read and sort
 * a backlog of half a million for every claim of 200. Prepared statements are planned once, for any values. And no JIT: the
 * compiler is not chosen by what a statement costs but by what the planner fears, and takes a second for a claim of 3 ms.
 */
const SESSION_SETTINGS = `
  SET statement_timeout = '5s'; SET lock_timeout = '1s'; SET idle_in_transaction_session_timeout = '10s';
  SET enable_bitmapscan = off; SET enable_seqscan = off; SET jit = off; SET plan_cache_mode = force_generic_plan`;

/** Needs idle_session_timeout; older ones get no fixes any more. */
const OLDEST_SERVER = 140_000;

export interface OutboxSession {
  readonly client: pg.Client;
  /** Aborts when the connection is gone: whatever it owned then belongs to nobody. */
  readonly gone: AbortSignal;
  close(): Promise<void>;
}

/**
 * One direct session: the lock, the claim and the mark die together.
 * @throws what connecting throws, within 6 seconds
 */
export async function openSession(databaseUrl: string, applicationName: string): Promise<OutboxSession> {
  const client = new pg.Client({
    connectionString: databaseUrl,
    application_name: applicationName,
    connectionTimeoutMillis: 5_000,
    keepAlive: true,
    // Gives up a connection whose other end is gone without a word; the statements' own limits are the server's.
    query_timeout: 8_000,
  });
  const gone = new AbortController();
  client.on('error', () => gone.abort()); // unheard, it ends the process
  client.on('end', () => gone.abort());
  const close = async (): Promise<void> => {
    await bounded('closing the Postgres session', 2_000, client.end()).catch(() => {
      (client as unknown as { connection: { stream: { destroy(): void } } }).connection.stream.destroy();
    });
  };
  try {
    await bounded('connecting to Postgres', 6_000, client.connect());
    await client.query(SESSION_SETTINGS);
  } catch (error) {
    await close(); // or every try leaves a connection behind
    throw error;
  }
  return { client, gone: gone.signal, close };
}

/**
 * The server is new enough and the outbox table is there.
 * @throws {ConfigurationError} when not, with the fix
 */
export async function checkMigrated(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ version: string; number: number }>(
    `SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS number`,
  );
  const server = rows[0] as { version: string; number: number };
  if (server.number < OLDEST_SERVER)
    throw new ConfigurationError(
      `DATABASE_URL leads to Postgres ${server.version}; Twinbox needs 14 or newer: upgrade it`,
    );
  try {
    await client.query('SELECT 1 FROM outbox LIMIT 0');
  } catch (error) {
    if ((error as { code?: string }).code !== UNDEFINED_TABLE) throw error;
    throw new ConfigurationError(
      'the table outbox does not exist in DATABASE_URL: run `twinbox migrate` first',
      { cause: error },
    );
  }
}

/** A lock, a statement that took too long, a deadlock: the session is whole, and the same statement can succeed later. */
export function isBusy(error: unknown): boolean {
  const { code } = error as { code?: string };
  return code === '55P03' || code === '57014' || code === '40P01' || code === '40001';
}
