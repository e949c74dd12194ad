import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { constants } from 'node:os';
import type { Readable } from 'node:stream';
import { pause } from '../runtime/loop.js';
import type { Launch } from './start-command.js';

/** How a process ended, as a shell would say it: its code, or 128 + the number of the signal. */
export interface End {
  readonly code: number;
  /** `exited with 3`, `was ended by SIGKILL`, `could not be started: …`. */
  readonly how: string;
}

/** A started process and everything it starts itself: one process group, known by the pid of its first. */
export interface Child {
  readonly name: string;
  /** Absent when it could not be started. */
  readonly pid: number | undefined;
  readonly outputs: { readonly stdout?: Readable | undefined; readonly stderr?: Readable | undefined };
  /** The first process's end; its children may still live. Never rejects. */
  readonly ended: Promise<End>;
  /** False when nothing of the group lives. */
  alive(): boolean;
  /** SIGTERM, once, however often it is called; once more to what its end leaves behind. */
  terminate(): void;
  /** SIGKILL to the whole group. */
  kill(): void;
}

/**
 * Starts a process in a process group of its own, so that a terminal's Ctrl-C reaches it through the runner
 * alone, and only once.
 *
 * Should the runner itself be killed with -9, its children live on (those that do not bear a broken output pipe
 * end at their next line): Node cannot ask the kernel for a signal at the parent's death (prctl), and a pipe that
 * each child would have to watch is no rule for foreign commands. A supervisor that kills by control group
 * (systemd, a container) ends them too; all parts of Twinbox bear being run twice.
 */
export function launch(
  name: string,
  { file, args, env: settings }: Launch,
  { cwd, env }: { cwd: string; env: NodeJS.ProcessEnv },
): Child {
  let child;
  try {
    child = spawn(file, args, {
      cwd,
      env: { ...env, ...settings },
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
  } catch (error) {
    return neverStarted(name, startFault(error as NodeJS.ErrnoException, file, cwd));
  }
  const { pid } = child;
  let first = pid !== undefined;
  let firstTold = false;
  let groupTold = false;

  const ended = new Promise<End>((resolve) => {
    child.once('exit', (code, signal) => {
      first = false;
      resolve(endOf(code, signal));
    });
    child.on('error', (error) => {
      if (pid === undefined) resolve(startFault(error, file, cwd));
    });
  });
  const alive = (): boolean => pid !== undefined && (first || groupAlive(pid));

  return {
    name,
    pid,
    outputs: { stdout: outputOf(child.stdout), stderr: outputOf(child.stderr) },
    ended,
    alive,
    terminate() {
      if (pid === undefined || !alive()) return;
      // A program tells its own children what to do. A shell does not (it dies at once, and what it ran is
      // left over), and left-overs have nobody.
      if (first) {
        if (!firstTold) send(pid, 'SIGTERM');
        firstTold = true;
      } else {
        if (!groupTold) send(-pid, 'SIGTERM');
        groupTold = true;
      }
    },
    kill() {
      if (pid !== undefined && alive()) send(-pid, 'SIGKILL');
    },
  };
}

function neverStarted(name: string, end: End): Child {
  return {
    name,
    pid: undefined,
    outputs: {},
    ended: Promise.resolve(end),
    alive: () => false,
    terminate: () => undefined,
    kill: () => undefined,
  };
}

/** There is no pipe when the machine ran out of file descriptors, whatever the types say. */
function outputOf(pipe: Readable | undefined): Readable | undefined {
  return pipe;
}

function send(to: number, signal: NodeJS.Signals): void {
  try {
    process.kill(to, signal);
  } catch {
    // Gone already (ESRCH), which is what was wanted.
  }
}

/** How long a killed group may take to vanish (a process in the kernel's hands) before nobody waits for it. */
const VANISH_MS = 2_000;

/**
 * Waits until nothing of a group lives whose first process has ended. Left-overs are told to stop, and killed
 * after `timeoutMs`; the answer is whether that was necessary.
 */
export async function clearGroup(child: Child, timeoutMs: number): Promise<{ killed: boolean }> {
  child.terminate();
  const deadlineMs = performance.now() + timeoutMs;
  let killed = false;
  while (child.alive() && performance.now() < deadlineMs + VANISH_MS) {
    if (!killed && performance.now() >= deadlineMs) {
      killed = true;
      child.kill();
    }
    await pause(25);
  }
  return { killed };
}

function endOf(code: number | null, signal: NodeJS.Signals | null): End {
  if (signal !== null) return { code: 128 + constants.signals[signal], how: `was ended by ${signal}` };
  return { code: code ?? 1, how: `exited with ${code ?? 1}` };
}

/** A shell's codes: 127 when there is no such program, 126 when it cannot be run. */
function startFault(error: NodeJS.ErrnoException, file: string, cwd: string): End {
  if (error.code === 'ENOENT')
    return { code: 127, how: `could not be started: there is no program "${file}" (or no folder ${cwd})` };
  return { code: 126, how: `could not be started: "${file}": ${error.message}` };
}

function groupAlive(pgid: number): boolean {
  try {
    process.kill(-pgid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
  return !onlyZombies(pgid);
}

/**
 * Where nobody reaps orphans (the runner as process 1 of a container) the dead stay in the group for ever;
 * Linux tells them apart in /proc/<pid>/stat: `pid (name) state ppid pgrp …`.
 */
function onlyZombies(pgid: number): boolean {
  let seen = false;
  for (const pid of processIds()) {
    const [state, , group] = statOf(pid);
    if (Number(group) !== pgid) continue;
    if (state !== 'Z' && state !== 'X') return false;
    seen = true;
  }
  return seen;
}

function processIds(): string[] {
  try {
    return readdirSync('/proc').filter((entry) => /^\d+$/.test(entry));
  } catch {
    return []; // no /proc: the answer of kill(2) stands
  }
}

function statOf(pid: string): string[] {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  } catch {
    return []; // ended meanwhile
  }
}
