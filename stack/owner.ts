import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Folder } from './folder.js';
import { bornOf, isAlive, untilGone } from './processes.js';
import type { Born } from './processes.js';

/** Who a stack ends with: the process that started it, and the guardian that sees to it. */
export type Owner = { process: Born; guardian: Born };

const path = (folder: Folder): string => join(folder.path, 'owner.json');

export const readOwner = (folder: Folder): Owner | undefined => {
  try {
    return JSON.parse(readFileSync(path(folder), 'utf8')) as Owner;
  } catch {
    return undefined;
  }
};

export const writeOwner = (folder: Folder, guardianPid: number): void => {
  const draft = `${path(folder)}.${process.pid}`;
  writeFileSync(draft, JSON.stringify({ process: bornOf(process.pid), guardian: bornOf(guardianPid) }));
  renameSync(draft, path(folder));
};

export const clearOwner = (folder: Folder): void => rmSync(path(folder), { force: true });

/** A stack whose owner died is being stopped by its guardian: waits until that is done. */
export const untilAbandonedIsStopped = async (folder: Folder): Promise<void> => {
  const owner = readOwner(folder);
  if (owner && !isAlive(owner.process)) await untilGone(owner.guardian, 60_000);
};

/** The living process that the stack ends with, if it has one. */
export const livingOwner = (folder: Folder): Born | undefined => {
  const owner = readOwner(folder);
  return owner && isAlive(owner.process) ? owner.process : undefined;
};

/** Throws when a stack belongs to another living process, since it would end with that one. */
export const refuseForeignOwner = (folder: Folder): void => {
  const owner = livingOwner(folder);
  if (!owner || owner.pid === process.pid) return;
  throw new Error(
    `stack ${folder.name} belongs to process ${owner.pid} and ends with it. ` +
      'Stop that process, or use another name.',
  );
};
