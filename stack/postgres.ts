import {
  appendFileSync,
  chownSync,
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import { accountOf, dataHome, makeDataHome } from './postgres-home.js';
import { findProgram, isProgram, run, searchPath } from './programs.js';
import type { Place, Programs, Service } from './service.js';

/** Debian keeps the server's programs off PATH, one folder a major version. */
const DEBIAN = '/usr/lib/postgresql';

const programFolders = (): string[] => {
  const majors = existsSync(DEBIAN) ? readdirSync(DEBIAN).filter((name) => /^\d+$/.test(name)) : [];
  return majors.sort((a, b) => Number(b) - Number(a)).map((major) => join(DEBIAN, major, 'bin'));
};

export const postgres: Service = {
  name: 'postgres',
  variable: 'DATABASE_URL',
  portNames: ['postgres'],
  // Fast shutdown: ends the sessions and writes the last checkpoint.
  stopSignal: 'SIGINT',

  async find() {
    const bin = programFolders().find(
      (path) => isProgram(join(path, 'postgres')) && isProgram(join(path, 'initdb')),
    );
    const server = bin === undefined ? findProgram('postgres') : join(bin, 'postgres');
    const initdb = bin === undefined ? findProgram('initdb') : join(bin, 'initdb');
    if (server === undefined || initdb === undefined) {
      return { what: 'the Postgres server (postgres, initdb)', packages: ['postgresql'] };
    }
    return { server, initdb };
  },

  async prepare(place, programs) {
    const data = join(await makeDataHome(place), 'data');
    if (!existsSync(join(data, 'PG_VERSION'))) await create(place, programs, data);
    else await refuseOtherMajor(data, programs, place);
    settle(place, data);
    // No server of this folder runs (that was looked at before), so the file names a process that is gone.
    rmSync(join(data, 'postmaster.pid'), { force: true });
  },

  async commands(place, programs) {
    const data = join(dataHome(place), 'data');
    const user = await accountOf();
    const command = { program: programs['server'] ?? '', args: ['-D', data], cwd: data, hidesMark: true };
    return [user ? { ...command, user } : command];
  },

  async setUp(place) {
    await withClient(urlOf(place, 'postgres'), async (client) => {
      const known = await client.query(`SELECT 1 FROM pg_database WHERE datname = 'twinbox'`);
      if (known.rowCount === 0) await client.query('CREATE DATABASE twinbox');
    });
  },

  async ready({ DATABASE_URL: url = '' }) {
    await withClient(url, (client) => client.query('SELECT 1'));
  },

  urls: (place) => ({ DATABASE_URL: urlOf(place, 'twinbox') }),

  async drop(place) {
    rmSync(dataHome(place), { recursive: true, force: true });
  },
};

const urlOf = ({ ports, password }: Pick<Place, 'ports' | 'password'>, database: string): string =>
  `postgres://twinbox:${password}@127.0.0.1:${ports['postgres'] ?? 0}/${database}`;

const withClient = async (url: string, work: (client: pg.Client) => Promise<unknown>): Promise<void> => {
  const client = new pg.Client({
    connectionString: url,
    connectionTimeoutMillis: 3_000,
    query_timeout: 10_000,
  });
  client.on('error', () => undefined);
  try {
    await client.connect();
    await work(client);
  } finally {
    await client.end();
  }
};

/** Our settings, in a file beside those that initdb found right for this machine; the later ones hold. */
const settle = (place: Place, data: string): void => {
  const settings = [
    `listen_addresses = '127.0.0.1'`,
    `port = ${place.ports['postgres'] ?? 0}`,
    `unix_socket_directories = ''`,
    'max_connections = 200',
    'fsync = on',
    // A client that vanished without a word must not hold its advisory locks for hours.
    'tcp_keepalives_idle = 30',
    `password_encryption = 'scram-sha-256'`,
    `log_line_prefix = '%m [%p] '`,
    '',
  ];
  writeFileSync(join(data, 'twinbox.conf'), settings.join('\n'), { mode: 0o644 });
  const main = join(data, 'postgresql.conf');
  const include = `include 'twinbox.conf'`;
  if (!readFileSync(main, 'utf8').includes(include)) appendFileSync(main, `\n${include}\n`);
};

/** Makes the cluster beside its final place and renames it, so that a run killed half-way leaves no half cluster. */
const create = async (place: Place, programs: Programs, data: string): Promise<void> => {
  const user = await accountOf();
  const draft = `${data}.new`;
  const secret = `${data}.secret`;
  rmSync(draft, { recursive: true, force: true });
  rmSync(secret, { force: true });
  writeFileSync(secret, place.password, { mode: 0o600 });
  if (user) chownSync(secret, user.uid, user.gid);
  place.log('postgres: making its data folder');
  try {
    const args = [
      '-D',
      draft,
      '-U',
      'twinbox',
      '-A',
      'scram-sha-256',
      `--pwfile=${secret}`,
      '-E',
      'UTF8',
      '--no-locale',
    ];
    await run(programs['initdb'] ?? '', args, {
      cwd: '/',
      env: { PATH: searchPath(), LANG: 'C.UTF-8' },
      ...user,
    });
  } finally {
    rmSync(secret, { force: true });
  }
  renameSync(draft, data);
};

const refuseOtherMajor = async (data: string, programs: Programs, place: Place): Promise<void> => {
  const made = readFileSync(join(data, 'PG_VERSION'), 'utf8').trim();
  const { stdout } = await run(programs['server'] ?? '', ['--version']);
  const runs = /(\d+)/.exec(stdout)?.[1];
  if (runs === made) return;
  throw new Error(
    `postgres: the data in ${place.folder} were made by version ${made}, this machine has ${runs ?? 'another'}. ` +
      `Install version ${made}, or drop this stack's data: npx tsx stack/main.ts remove --name <its name>`,
  );
};
