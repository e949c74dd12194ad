import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import pg from 'pg';

const FOLDER = new URL('../../migrations/', import.meta.url);
/** Any fixed number of our own: two migrations at once would both see the same gap. */
const LOCK = 7_465_646_201;

export interface Migration {
  readonly name: string;
  readonly applied: boolean;
}

/**
 * Applies the SQL files that are missing, in the order of their names, each in its own transaction, one
 * process at a time. Safe to run at every deploy.
 * @returns every migration, and whether this call applied it
 * @throws when a file that was applied has changed since, or a statement fails
 */
export async function migrateOutbox(databaseUrl: string): Promise<Migration[]> {
  const client = new pg.Client({
    connectionString: databaseUrl,
    connectionTimeoutMillis: 5_000,
    application_name: 'twinbox-migrate',
  });
  client.on('error', () => undefined); // the query under way rejects; an unheard 'error' would end the process
  await client.connect();
  try {
    await client.query(`SET lock_timeout = '10s'`);
    await client.query('SELECT pg_advisory_lock($1)', [LOCK]);
    await client.query(
      `CREATE TABLE IF NOT EXISTS twinbox_migration
         (name text PRIMARY KEY, sha256 text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())`,
    );
    const known = await client.query<{ name: string; sha256: string }>(
      'SELECT name, sha256 FROM twinbox_migration',
    );
    const done = new Map(known.rows.map(({ name, sha256 }) => [name, sha256]));
    const result: Migration[] = [];
    for (const name of (await readdir(FOLDER)).filter((file) => file.endsWith('.sql')).sort()) {
      const sql = await readFile(new URL(name, FOLDER), 'utf8');
      const sha256 = createHash('sha256').update(sql).digest('hex');
      const before = done.get(name);
      if (before !== undefined && before !== sha256) {
        throw new Error(
          `migration ${name} was applied in another form: put the file back as it was, and write the change as a new file`,
        );
      }
      if (before === undefined) await apply(client, name, sql, sha256);
      result.push({ name, applied: before === undefined });
    }
    return result;
  } finally {
    await client.end(); // ends the session, and with it the lock
  }
}

async function apply(client: pg.Client, name: string, sql: string, sha256: string): Promise<void> {
  try {
    await client.query('BEGIN');
    await client.query(sql);
    await client.query('INSERT INTO twinbox_migration (name, sha256) VALUES ($1, $2)', [name, sha256]);
    await client.query('COMMIT');
  } catch (error) {
    await client.query('ROLLBACK');
    throw new Error(`migration ${name} failed: ${(error as Error).message}`, { cause: error });
  }
}
