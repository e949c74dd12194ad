import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { installPackages } from '../../stack/apt.js';
import { choosePorts } from '../../stack/ports.js';
import { accountOf } from '../../stack/postgres-home.js';
import { findProgram } from '../../stack/programs.js';
import { until } from './until.js';

export type PoolMode = 'session' | 'transaction' | 'statement';

/** A private PgBouncer on loopback, in front of one Postgres. */
export interface PgBouncer {
  /** The database it stands before, by way of the pooler. */
  readonly url: string;
  /** What its own console says of a setting. */
  setting(name: string): Promise<string | undefined>;
  /** Clients that it let in so far, our own looks included. */
  logins(): number;
  /** Ends it, and with it every connection that it holds. */
  close(): Promise<void>;
}

/**
 * Starts a pooler before `databaseUrl`; `settings` are lines of its `[pgbouncer]` section.
 * @throws when there is no PgBouncer on this machine and it cannot be installed, with the fix
 */
export async function startPgBouncer(
  databaseUrl: string,
  poolMode: PoolMode,
  settings: Readonly<Record<string, string>> = {},
): Promise<PgBouncer> {
  const program = await findPgBouncer();
  const server = new URL(databaseUrl);
  const { port = 0 } = await choosePorts(['port'], {}, new Set());
  const account = await accountOf(); // it refuses to run as root, as the server does
  const folder = mkdtempSync(join(tmpdir(), 'twinbox-pgbouncer-'));
  const files = {
    'users.txt': `"${server.username}" "${server.password}"\n`,
    'pgbouncer.ini': [
      '[databases]',
      `* = host=${server.hostname} port=${server.port}`,
      '[pgbouncer]',
      'listen_addr = 127.0.0.1',
      `listen_port = ${port}`,
      'unix_socket_dir =',
      'auth_type = scram-sha-256',
      `auth_file = ${join(folder, 'users.txt')}`,
      `admin_users = ${server.username}`,
      `pool_mode = ${poolMode}`,
      ...Object.entries(settings).map(([name, value]) => `${name} = ${value}`),
      '',
    ].join('\n'),
  };
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text, { mode: 0o600 });
  for (const path of [folder, ...Object.keys(files).map((name) => join(folder, name))]) {
    if (account) chownSync(path, account.uid, account.gid);
  }
  chmodSync(folder, 0o700);

  const child = spawn(program, [join(folder, 'pgbouncer.ini')], {
    cwd: folder,
    stdio: ['ignore', 'pipe', 'pipe'],
    ...account,
  });
  let log = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (text: Buffer) => (log += String(text)));
  const ended = once(child, 'close');
  const url = new URL(databaseUrl);
  url.hostname = '127.0.0.1';
  url.port = String(port);
  const console_ = new URL(url.href);
  console_.pathname = '/pgbouncer';
  const close = async (): Promise<void> => {
    child.kill('SIGTERM'); // of PgBouncer: at once, without waiting for its clients
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };
  const setting = async (name: string): Promise<string | undefined> => {
    const rows = await ask<{ key: string; value: string }>(console_.href, 'SHOW CONFIG');
    return rows.find(({ key }) => key === name)?.value;
  };
  try {
    await until('the pooler answers', () => {
      if (child.exitCode !== null) throw new Error(`PgBouncer ended at once: ${log}`);
      return setting('pool_mode');
    });
  } catch (error) {
    await close();
    throw new Error(`PgBouncer did not come up: ${log}`, { cause: error });
  }
  return {
    url: url.href,
    setting,
    logins: () => log.split('login attempt').length - 1,
    close,
  };
}

async function findPgBouncer(): Promise<string> {
  const find = (): string | undefined => findProgram('pgbouncer');
  const found = find() ?? ((await installPackages(['pgbouncer'], () => undefined)) ? find() : undefined);
  if (found !== undefined) return found;
  throw new Error(
    'this test needs PgBouncer, and only root may install it here. Run: sudo apt-get install -y --no-install-recommends pgbouncer',
  );
}

async function ask<Row extends pg.QueryResultRow>(url: string, sql: string): Promise<Row[]> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 2_000 });
  client.on('error', () => undefined);
  await client.connect();
  try {
    return (await client.query<Row>(sql)).rows;
  } finally {
    await client.end();
  }
}
