import pg from 'pg';
import { ConfigurationError } from '../runtime/errors.js';
import { bounded } from '../runtime/loop.js';

const ROUNDS = 3;
const ANSWER_MS = 3_000;

/**
 * Two connections to DATABASE_URL are two sessions, each its own for as long as it is open. Behind a pooler in
 * transaction or statement mode they are not: locks are then held by nobody or by two, and settings leak into other
 * people's sessions. Asked without a lock or a setting, which would stay behind in the pool: while the second connection
 * keeps a transaction open, the first must be answered by the backend that answered it before.
 * @throws {ConfigurationError} with the fix when a pooler shares sessions; what connecting throws
 */
export async function checkDirectSession(databaseUrl: string): Promise<void> {
  const [first, second] = [newClient(databaseUrl), newClient(databaseUrl)];
  try {
    await bounded('connecting to Postgres', 6_000, Promise.all([first.connect(), second.connect()]));
    for (let round = 0; round < ROUNDS; round += 1) {
      const before = await backendOf(first);
      await second.query('BEGIN').catch((error: unknown) => {
        // PgBouncer's own words: "transaction blocks not allowed in statement pooling mode".
        throw /pooling mode/.test((error as Error).message) ? sharedSession() : error;
      });
      const other = await backendOf(second);
      // A pool with a single backend would let this wait for the transaction of the second.
      const after = other === before ? undefined : await backendOf(first).catch(() => undefined);
      await second.query('ROLLBACK');
      if (after !== before) throw sharedSession();
    }
  } finally {
    await Promise.all(
      [first, second].map((client) => bounded('closing', 1_000, client.end()).catch(() => undefined)),
    );
  }
}

function newClient(connectionString: string): pg.Client {
  const client = new pg.Client({
    connectionString,
    connectionTimeoutMillis: 5_000,
    query_timeout: ANSWER_MS,
  });
  client.on('error', () => undefined); // the query under way rejects; an unheard 'error' would end the process
  return client;
}

async function backendOf(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  return (rows[0] as { pid: number }).pid;
}

function sharedSession(): ConfigurationError {
  return new ConfigurationError(
    'DATABASE_URL leads through a pooler in transaction (or statement) mode, where a session, its locks and its ' +
      'settings belong to nobody: give the relay a direct address of Postgres, or of a pool in session mode ' +
      '(PgBouncer: pool_mode = session)',
  );
}
