import pg from 'pg';
import { ConfigurationError } from '../runtime/errors.js';
import { bounded } from '../runtime/loop.js';

/** SQLSTATE of a table that is not there. */
const UNDEFINED_TABLE = '42P01';

/**
 * Keepalives: when this end is gone without a word, the server frees the lock after about 30 s, and not after the
 * two hours of a system's default. No bitmap scans: before the first ANALYZE the planner expects a handful of
 * pending rows, and would read and sort a backlog of half a million for every claim of 200.
 */
const SESSION_SETTINGS = `
  SET statement_timeout = '5s'; SET lock_timeout = '1s'; SET idle_in_transaction_session_timeout = '10s';
  SET tcp_keepalives_idle = 15; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;
  SET enable_bitmapscan = off`;

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
    query_timeout: 15_000,
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
 * The outbox table is there.
 * @throws {ConfigurationError} when it is not, with the fix
 */
export async function checkMigrated(client: pg.Client): Promise<void> {
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
