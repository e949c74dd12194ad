import { chmodSync, chownSync, existsSync, lstatSync, mkdirSync, readlinkSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { run } from './programs.js';
import type { Place } from './service.js';

type Account = { uid: number; gid: number };

/** The user that Postgres runs as: `postgres` when we are root (the server refuses root), else ourselves. */
export const accountOf = async (): Promise<Account | undefined> => {
  if (process.getuid?.() !== 0) return undefined;
  try {
    const [uid, gid] = await Promise.all([run('id', ['-u', 'postgres']), run('id', ['-g', 'postgres'])]);
    return { uid: Number(uid.stdout), gid: Number(gid.stdout) };
  } catch {
    throw new Error(
      'postgres: the server refuses to run as root and this machine has no user "postgres". ' +
        'Run: useradd --system --no-create-home postgres',
    );
  }
};

/** Points to the folder in use when it is not the service's own; kept, so that the data stay where they were made. */
const pointer = (place: Pick<Place, 'folder'>): string => join(place.folder, 'elsewhere');

/** The folder that holds the data folder, as `makeDataHome` chose it. */
export const dataHome = (place: Pick<Place, 'folder'>): string => {
  const link = pointer(place);
  return existsSync(link) || isLink(link) ? readlinkSync(link) : place.folder;
};

const isLink = (path: string): boolean =>
  lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() ?? false;

/**
 * Gives the folder for the data to the server's user. As root that is another user, whose way to the stack's folder
 * may be closed (a home of mode 0700); the data then go to a folder under the system's temporary files.
 */
export const makeDataHome = async (place: Place): Promise<string> => {
  const account = await accountOf();
  if (!account) return place.folder;
  if (isLink(pointer(place))) return give(dataHome(place), account);
  give(place.folder, account);
  if (await mayWrite(place.folder, account)) return place.folder;
  for (const base of [tmpdir(), '/var/tmp']) {
    const home = give(join(base, `twinbox-postgres-${place.id}`), account);
    if (!(await mayWrite(home, account))) continue;
    symlinkSync(home, pointer(place));
    place.log(`postgres: user "postgres" cannot reach ${place.folder}; its data are in ${home}`);
    return home;
  }
  throw new Error(
    `postgres: user "postgres" can reach neither ${place.folder} nor the folders of temporary files. ` +
      'Run the stack as a normal user, or from a folder whose parents others may pass (chmod o+x).',
  );
};

const give = (folder: string, { uid, gid }: Account): string => {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const found = lstatSync(folder);
  // Under /tmp anybody may have been here first.
  if (!found.isDirectory() || (found.uid !== 0 && found.uid !== uid)) {
    throw new Error(`postgres: ${folder} belongs to somebody else; remove it and start again`);
  }
  chownSync(folder, uid, gid);
  chmodSync(folder, 0o700);
  return folder;
};

const mayWrite = (folder: string, account: Account): Promise<boolean> =>
  run('test', ['-w', folder], { cwd: '/', ...account }).then(
    () => true,
    () => false,
  );
