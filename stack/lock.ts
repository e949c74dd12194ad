import { linkSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import type { Folder } from './folder.js';
import { bornOf, isAlive } from './processes.js';
import type { Born } from './processes.js';

const readHolder = (path: string): Born | undefined => {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as Born;
  } catch {
    return undefined;
  }
};

/** Removes the lock of a dead process. False when another process was faster and the lock is a living one's by now. */
const takeAway = (path: string): boolean => {
  const aside = `${path}.${process.pid}.old`;
  try {
    renameSync(path, aside);
    const holder = readHolder(aside);
    const isLiving = holder !== undefined && isAlive(holder);
    if (isLiving) linkSync(aside, path);
    return !isLiving;
  } catch {
    return false;
  } finally {
    rmSync(aside, { force: true });
  }
};

/** Puts this process's name into the file if it is nobody's; false when a living process has it. */
const take = (path: string): boolean => {
  const me = bornOf(process.pid);
  const draft = `${path}.${process.pid}`;
  writeFileSync(draft, JSON.stringify(me), { mode: 0o600 });
  try {
    const holder = readHolder(path);
    if (holder && !isAlive(holder) && !takeAway(path)) return false;
    // A link appears whole and to one of us only.
    linkSync(draft, path);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  } finally {
    rmSync(draft, { force: true });
  }
};

/** One process at a time starts or stops parts of a stack. A lock whose holder died is free. */
export const withLock = async <T>(folder: Folder, work: () => Promise<T>): Promise<T> => {
  const path = join(folder.path, 'lock');
  const deadline = Date.now() + 300_000;
  while (!take(path)) {
    if (Date.now() > deadline) {
      throw new Error(
        `stack ${folder.name}: process ${readHolder(path)?.pid ?? '?'} has held ${path} for 5 minutes`,
      );
    }
    await wait(100);
  }
  try {
    return await work();
  } finally {
    rmSync(path, { force: true });
  }
};
