import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { StateChange } from '../../src/cli/start.js';
import { until } from './until.js';

/** The runner in a process of its own, as `twinbox start` runs it; SIGUSR2 makes it end by its own fault. */
const RUNNER = `
import { appendFileSync } from 'node:fs';
import { parseStartArgs, start } from ${JSON.stringify(new URL('../../src/cli/start.ts', import.meta.url).href)};
process.on('SIGUSR2', () => process.exit(9));
process.exit(await start({
  ...parseStartArgs(process.argv.slice(2)), cwd: process.cwd(), env: process.env,
  stdout: process.stdout, stderr: process.stderr, signal: new AbortController().signal,
  onState: (change) => appendFileSync('states', JSON.stringify(change) + '\\n'),
}));
`;

/**
 * A process type: drains for argv[2] ms after SIGTERM, ends with argv[3] on SIGUSR2, and writes down whatever
 * happens to it. Its handlers stand before it says "up".
 */
const CHILD = `
import { appendFileSync } from 'node:fs';
const [drainMs, code] = process.argv.slice(2).map(Number);
const note = (what) => appendFileSync(process.env.PS + '.events', what + '\\n');
process.on('SIGTERM', () => { note('SIGTERM'); setTimeout(() => { note('drained'); process.exit(0); }, drainMs); });
process.on('SIGINT', () => note('SIGINT')).on('SIGHUP', () => note('SIGHUP'));
process.on('SIGUSR2', () => process.exit(code));
process.stdout.on('error', () => {}); // who logs into a pipe that broke lives on, as pino does
setInterval(() => console.log('tick'), 50);
console.log('listening on ' + process.env.PORT);
note('up ' + process.pid);
`;

/** A folder with a Procfile and the two scripts; `child.mjs <drainMs> <code on SIGUSR2>` is what it may run. */
export interface Place {
  readonly cwd: string;
  /** What a process wrote down, in order. */
  events(name: string): string[];
  /** The pids that the processes of this name had, in order. */
  pids(name: string): number[];
  /** The pid of the n-th start of a process, once it is up. */
  up(name: string, nth?: number): Promise<number>;
  states(): StateChange[];
  remove(): void;
}

export function makePlace(procfile: string, files: Record<string, string> = {}): Place {
  const cwd = mkdtempSync(join(tmpdir(), 'twinbox-start-'));
  const all = { Procfile: procfile, 'runner.mjs': RUNNER, 'child.mjs': CHILD, ...files };
  for (const [name, text] of Object.entries(all)) writeFileSync(join(cwd, name), text);
  const lines = (file: string): string[] => {
    const path = join(cwd, file);
    return existsSync(path) ? readFileSync(path, 'utf8').split('\n').slice(0, -1) : [];
  };
  const events = (name: string): string[] => lines(`${name}.events`);
  const pids = (name: string): number[] =>
    events(name).flatMap((event) => (event.startsWith('up ') ? [Number(event.slice(3))] : []));
  return {
    cwd,
    events,
    pids,
    up: (name, nth = 1) => until(`${name} is up (${nth})`, () => pids(name)[nth - 1]),
    states: () => lines('states').map((line) => JSON.parse(line) as StateChange),
    remove: () => rmSync(cwd, { recursive: true, force: true }),
  };
}

export interface Runner {
  readonly process: ChildProcess;
  /** A signal to the runner's whole process group, as a terminal's Ctrl-C is. */
  signal(name: NodeJS.Signals): void;
  alive(): boolean;
  readonly exit: Promise<number>;
  stdout(): string;
  stderr(): string;
}

const TSX = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;

export function runRunner({ cwd }: Place, args: readonly string[], env: Record<string, string> = {}): Runner {
  const runner = spawn(process.execPath, ['--import', TSX, 'runner.mjs', ...args], {
    cwd,
    // An empty PORT is none: the ports of a test do not follow from where it runs.
    env: { ...process.env, PORT: '', ...env },
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const out: Buffer[] = [];
  const err: Buffer[] = [];
  runner.stdout.on('data', (chunk: Buffer) => out.push(chunk));
  runner.stderr.on('data', (chunk: Buffer) => err.push(chunk));
  const exit = new Promise<number>((resolve, reject) => {
    runner.once('close', (code, signal) => {
      if (code === null) reject(new Error(`the runner was ended by ${signal ?? 'nothing'}`));
      else resolve(code);
    });
  });
  exit.catch(() => undefined); // who awaits it sees it
  return {
    process: runner,
    signal: (name) => void process.kill(-(runner.pid ?? 0), name),
    alive: () => runner.exitCode === null && runner.signalCode === null,
    exit,
    stdout: () => Buffer.concat(out).toString(),
    stderr: () => Buffer.concat(err).toString(),
  };
}

/** Whether nothing of this pid runs any more; the dead whom nobody has fetched yet do not run. */
export function isGone(pid: number): boolean {
  try {
    process.kill(pid, 0);
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2).startsWith('Z');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // ENOENT: it has just ended, or this system has no /proc and the pid stands.
    return code === 'ESRCH' || (code === 'ENOENT' && existsSync('/proc'));
  }
}
