import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { until } from './until.js';

export interface LogLine {
  readonly level: string;
  readonly event?: string;
  readonly messageId?: string;
  readonly msg: string;
  readonly [field: string]: unknown;
}

export interface Running {
  readonly pid: number;
  /** The parsed log lines so far. */
  readonly lines: LogLine[];
  /** What was written that is no JSON line, as a start fault. */
  readonly text: string[];
  /** Resolves with the exit code, or the signal. */
  readonly ended: Promise<number | string>;
  kill(signal: NodeJS.Signals): void;
  /** The first line of this event, from now or before. */
  line(event: string, ms?: number): Promise<LogLine>;
  /** SIGTERM, and the exit code. */
  stop(): Promise<number | string>;
}

const running = new Set<Running>();

/** Starts a process type as the Procfile does: `node dist/<type>/main.js`. */
export function startType(type: string, args: readonly string[], env: NodeJS.ProcessEnv): Running {
  return startProcess(process.execPath, [`dist/${type}/main.js`, ...args], env);
}

export function startProcess(command: string, args: readonly string[], env: NodeJS.ProcessEnv): Running {
  const child = spawn(command, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
  const lines: LogLine[] = [];
  const text: string[] = [];
  for (const stream of [child.stdout, child.stderr]) {
    createInterface({ input: stream }).on('line', (line) => {
      if (line.startsWith('{')) lines.push(JSON.parse(line) as LogLine);
      else text.push(line);
    });
  }
  const process_: Running = {
    pid: pidOf(child),
    lines,
    text,
    ended: once(child, 'close').then(([code, signal]) => (code ?? signal) as number | string),
    kill: (signal) => void child.kill(signal),
    line: (event, ms = 20_000) =>
      until(
        `line ${event} of ${args.join(' ')}; so far: ${JSON.stringify(lines.slice(-5))} ${text.join('\n')}`,
        () => lines.find((line) => line.event === event),
        { ms },
      ),
    stop: () => {
      child.kill('SIGTERM');
      return process_.ended;
    },
  };
  running.add(process_);
  void process_.ended.finally(() => running.delete(process_));
  return process_;
}

/** For afterEach: a test that failed half-way leaves no process behind. */
export async function killAll(): Promise<void> {
  const left = [...running];
  for (const one of left) {
    one.kill('SIGCONT');
    one.kill('SIGKILL');
  }
  await Promise.all(left.map(({ ended }) => ended));
}

function pidOf(child: ChildProcess): number {
  if (child.pid === undefined) throw new Error('the process could not be started');
  return child.pid;
}
