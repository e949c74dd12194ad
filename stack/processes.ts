import { spawn } from 'node:child_process';
import { closeSync, openSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { sep } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { searchPath } from './programs.js';
import type { Command } from './service.js';

/**
 * A process, named so that it is never mistaken for a later one with the same number: `startTicks` is when it was
 * born, in the kernel's ticks since boot.
 */
export type Born = { pid: number; startTicks: string };

/** A launched process. What it runs and where is kept only for programs that hide their mark. */
export type Launched = Born & { hidden?: { exe: string; cwd: string } };

type Seen = Born & { parent: number; state: string };

const MARK = 'TWINBOX_STACK_PART';

/** All processes of the machine that are not zombies. */
const seen = (): Map<number, Seen> => {
  const all = new Map<number, Seen>();
  for (const name of readdirSync('/proc')) {
    const one = /^\d+$/.test(name) ? look(Number(name)) : undefined;
    if (one && one.state !== 'Z' && one.state !== 'X') all.set(one.pid, one);
  }
  return all;
};

const look = (pid: number): Seen | undefined => {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name stands in brackets and may hold blanks and brackets itself; the fields are counted from its end.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { pid, state: fields[0] ?? '?', parent: Number(fields[1]), startTicks: fields[19] ?? '' };
  } catch {
    return undefined;
  }
};

/** This process, or another by its number; undefined when there is none. */
export const bornOf = (pid: number): Born | undefined => {
  const found = look(pid);
  return found && { pid, startTicks: found.startTicks };
};

export const isAlive = (born: Born): boolean => {
  const now = look(born.pid);
  return now !== undefined && now.startTicks === born.startTicks && now.state !== 'Z' && now.state !== 'X';
};

const link = (path: string): string => {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
};

const environmentOf = (pid: number): string => {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'latin1');
  } catch {
    return '';
  }
};

/**
 * Every living process of a service: those that were launched, their descendants, and those that lost their parent
 * (a daemon, the children of a killed server): they carry the mark in their environment, or, when they overwrite it,
 * run the launched program inside its folder.
 */
export const processesOf = (mark: string, launched: Launched[]): Seen[] => {
  const all = seen();
  const mine = new Map<number, Seen>();
  const entry = `${MARK}=${mark}\0`;
  const hidden = launched.flatMap((one) => (one.hidden ? [one.hidden] : []));
  const runsInside = (pid: number): boolean => {
    const exe = link(`/proc/${pid}/exe`);
    const cwd = link(`/proc/${pid}/cwd`);
    return hidden.some((one) => exe === one.exe && (cwd === one.cwd || cwd.startsWith(one.cwd + sep)));
  };
  for (const one of all.values()) {
    const isLaunched = launched.some(
      ({ pid, startTicks }) => pid === one.pid && startTicks === one.startTicks,
    );
    const environment = isLaunched ? '' : environmentOf(one.pid);
    if (isLaunched || `\0${environment}`.includes(`\0${entry}`) || runsInside(one.pid))
      mine.set(one.pid, one);
  }
  for (let before = -1; before !== mine.size;) {
    before = mine.size;
    for (const one of all.values()) if (mine.has(one.parent)) mine.set(one.pid, one);
  }
  return [...mine.values()];
};

/** Sends a signal to each; one that is gone already is as good as signalled. */
export const signal = (processes: Born[], name: NodeJS.Signals): void => {
  for (const born of processes) {
    if (!isAlive(born)) continue;
    try {
      process.kill(born.pid, name);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  }
};

/** Polls until `list` is empty, doing `each` to what is left. Returns whether it became empty in time. */
export const untilNone = async (
  list: () => Seen[],
  each: (left: Seen[]) => void,
  timeoutMs: number,
): Promise<boolean> => {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const left = list();
    if (left.length === 0) return true;
    if (Date.now() > deadline) return false;
    each(left);
    await wait(30);
  }
};

/**
 * Starts a program that outlives this process: its own session, output appended to `logFile`, and an environment
 * of its own, so that settings of the caller (PGHOST, RABBITMQ_…) never reach it.
 */
export const launch = async (command: Command, mark: string, logFile: string): Promise<Launched> => {
  const output = openSync(logFile, 'a', 0o600);
  try {
    const child = spawn(command.program, command.args, {
      cwd: command.cwd,
      detached: true,
      stdio: ['ignore', output, output],
      env: { PATH: searchPath(), HOME: command.cwd, LANG: 'C.UTF-8', ...command.env, [MARK]: mark },
      ...command.user,
    });
    await new Promise<void>((resolve, reject) => {
      child.once('spawn', resolve);
      child.once('error', reject);
    });
    child.unref();
    const born = child.pid === undefined ? undefined : bornOf(child.pid);
    if (!born) throw new Error(`${command.program} ended at once; see ${logFile}`);
    if (command.hidesMark !== true) return born;
    return { ...born, hidden: { exe: link(`/proc/${born.pid}/exe`), cwd: command.cwd } };
  } finally {
    closeSync(output);
  }
};

/** Waits until one process is gone. */
export const untilGone = async (born: Born, timeoutMs: number): Promise<void> => {
  const deadline = Date.now() + timeoutMs;
  while (isAlive(born) && Date.now() < deadline) await wait(30);
};
