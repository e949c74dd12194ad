import { createHash, randomBytes } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Launched } from './processes.js';
import { SERVICE_NAMES } from './service.js';
import type { Ports, ServiceName } from './service.js';

/** What a stack remembers between runs, in `<root>/<name>/state.json`. */
export type State = {
  ports: Partial<Record<ServiceName, Ports>>;
  /** Where each service ran last. */
  sources: Partial<Record<ServiceName, 'machine' | 'docker'>>;
};

export type Folder = { path: string; name: string; id: string };

/** The folder of a stack. Nothing is created here. */
export const folderOf = (root: string, name: string): Folder => {
  if (!/^[a-z0-9][a-z0-9_-]{0,39}$/i.test(name)) {
    throw new Error(`stack name ${JSON.stringify(name)}: use 1 to 40 letters, digits, "-" or "_"`);
  }
  const path = join(root, name);
  return { path, name, id: createHash('sha256').update(path).digest('hex').slice(0, 8) };
};

/** Creates the folder. Others may pass through it (Postgres runs as another user) but not list or read it. */
export const makeFolder = (folder: Folder): void => {
  mkdirSync(folder.path, { recursive: true });
  chmodSync(folder.path, 0o711);
};

export const serviceFolder = (folder: Folder, name: ServiceName): string => join(folder.path, name);
export const logFile = (folder: Folder, name: ServiceName): string => join(folder.path, `${name}.log`);

const writeJson = (path: string, value: unknown): void => {
  // Whole or not at all: a run that is killed here must not leave half a file to the next.
  const draft = `${path}.${process.pid}`;
  writeFileSync(draft, `${JSON.stringify(value, null, 2)}\n`, { mode: 0o600 });
  renameSync(draft, path);
};

const readJson = (path: string): unknown =>
  existsSync(path) ? (JSON.parse(readFileSync(path, 'utf8')) as unknown) : undefined;

export const readState = (folder: Folder): State =>
  (readJson(join(folder.path, 'state.json')) as State | undefined) ?? { ports: {}, sources: {} };

export const writeState = (folder: Folder, state: State): void =>
  writeJson(join(folder.path, 'state.json'), state);

export const readLaunched = (folder: Folder, name: ServiceName): Launched[] =>
  (readJson(join(folder.path, `${name}.pids`)) as Launched[] | undefined) ?? [];

export const writeLaunched = (folder: Folder, name: ServiceName, launched: Launched[]): void =>
  writeJson(join(folder.path, `${name}.pids`), launched);

/** The stack's passwords (mode 0600), made the first time. Hex, so that they need no escaping in a URL. */
export const passwords = (folder: Folder): Record<ServiceName, string> => {
  const path = join(folder.path, 'passwords.json');
  const known = (readJson(path) ?? {}) as Partial<Record<ServiceName, string>>;
  const all = Object.fromEntries(
    SERVICE_NAMES.map((name) => [name, known[name] ?? randomBytes(16).toString('hex')]),
  ) as Record<ServiceName, string>;
  if (SERVICE_NAMES.some((name) => known[name] === undefined)) writeJson(path, all);
  return all;
};
