import { execFile } from 'node:child_process';
import { accessSync, constants, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';

export const run = promisify(execFile);

/** PATH with the system folders that a plain user's PATH often lacks. */
export const searchPath = (): string =>
  [process.env['PATH'] ?? '', '/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin']
    .filter((part) => part !== '')
    .join(delimiter);

export const isProgram = (path: string): boolean => {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
};

/** The full path of a program, or undefined. */
export const findProgram = (name: string, folders = searchPath().split(delimiter)): string | undefined =>
  folders.map((folder) => join(folder, name)).find(isProgram);

/** Where programs are kept that this project brought itself, for all stacks of this user. */
export const cacheFolder = (): string =>
  join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'twinbox');
