import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import type { Session } from './filter.js';

/** What a server is, without a word on whether that is right. */
export interface ServerFacts {
  readonly version: string;
  /** As 160004. */
  readonly versionNumber: number;
  readonly database: string;
  readonly role: string;
  /** A standby replays another server's log. */
  readonly standby: boolean;
  readonly readOnly: boolean;
  /** Of the cluster, as `autovacuum` and `track_counts`. */
  readonly autovacuum: boolean;
  /** The server's clock minus this process's, in milliseconds, and how far that may be off. */
  readonly skewMs: number;
  readonly skewUncertaintyMs: number;
}

export async function readServerFacts(session: Session): Promise<ServerFacts> {
  await session.query('SELECT 1'); // the first round trip of a session is a slow one
  const before = Date.now();
  const { rows } = await session.query<ServerFacts & { atMs: number }>(
    `SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS "atMs",
            current_setting('server_version') AS version,
            current_setting('server_version_num')::int AS "versionNumber",
            current_database() AS database, current_user AS role, pg_is_in_recovery() AS standby,
            current_setting('transaction_read_only') = 'on' AS "readOnly",
            current_setting('autovacuum') = 'on' AND current_setting('track_counts') = 'on' AS autovacuum`,
  );
  const after = Date.now();
  const { atMs, ...facts } = rows[0] as ServerFacts & { atMs: number };
  return { ...facts, skewMs: atMs - (before + after) / 2, skewUncertaintyMs: (after - before) / 2 };
}

/** The outbox as a table; undefined when there is none on the search path. */
export interface TableFacts {
  /** As `autovacuum_vacuum_threshold=1000`. */
  readonly options: readonly string[];
  /** What this role may not do of SELECT, INSERT, UPDATE, DELETE. */
  readonly missingRights: readonly string[];
  readonly liveRows: number;
  readonly deadRows: number;
  /** ISO, seconds; null when never. */
  readonly lastVacuum: string | null;
}

export async function readTableFacts(session: Session): Promise<TableFacts | undefined> {
  const { rows } = await session.query<TableFacts>(
    `SELECT coalesce(c.reloptions, '{}') AS options,
            ARRAY(SELECT p FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS p
                   WHERE NOT has_table_privilege(c.oid, p)) AS "missingRights",
            coalesce(s.n_live_tup, 0)::float8 AS "liveRows", coalesce(s.n_dead_tup, 0)::float8 AS "deadRows",
            to_char(greatest(s.last_vacuum, s.last_autovacuum) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
              AS "lastVacuum"
       FROM pg_class c LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid
      WHERE c.oid = to_regclass('outbox') AND c.relkind = 'r'`,
  );
  return rows[0];
}

/** What of the migrations of this version the database has. */
export interface MigrationFacts {
  /** Names of files that were not applied. */
  readonly missing: readonly string[];
  /** Applied in another form than the file has now. */
  readonly changed: readonly string[];
  /** Applied, and no file of this version: a newer one was here. */
  readonly unknown: readonly string[];
  /** Sessions that hold or await the lock of the migrations. */
  readonly underWay: readonly { readonly pid: number; readonly holds: boolean; readonly seconds: number }[];
}

const FOLDER = new URL('../../migrations/', import.meta.url);

export async function readMigrationFacts(session: Session): Promise<MigrationFacts> {
  const files = (await readdir(FOLDER)).filter((file) => file.endsWith('.sql')).sort();
  const { rows: exists } = await session.query<{ there: boolean }>(
    `SELECT to_regclass('twinbox_migration') IS NOT NULL AS there`,
  );
  const applied = new Map<string, string>();
  if (exists[0]?.there === true) {
    const { rows } = await session.query<{ name: string; sha256: string }>(
      'SELECT name, sha256 FROM twinbox_migration',
    );
    for (const { name, sha256 } of rows) applied.set(name, sha256);
  }
  const changed: string[] = [];
  for (const name of files) {
    const sha256 = createHash('sha256')
      .update(await readFile(new URL(name, FOLDER), 'utf8'))
      .digest('hex');
    if (applied.has(name) && applied.get(name) !== sha256) changed.push(name);
  }
  // The lock of migrate.ts is one number of 64 bits, whose halves pg_locks shows apart.
  const { rows: underWay } = await session.query<MigrationFacts['underWay'][number]>(
    `SELECT l.pid, l.granted AS holds,
            coalesce(extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, a.state_change)), 0)::float8 AS seconds
       FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
      WHERE l.locktype = 'advisory' AND l.objsubid = 1
        AND (l.classid::bigint << 32) + l.objid::bigint = 7465646201
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      ORDER BY l.granted DESC, l.pid`,
  );
  return {
    missing: files.filter((name) => !applied.has(name)),
    changed,
    unknown: [...applied.keys()].filter((name) => !files.includes(name)),
    underWay,
  };
}
