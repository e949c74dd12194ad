import { spawn, type ChildProcess } from 'node:child_process';

/** What a command printed, and its exit code. */
export interface Printed {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  /** The one JSON document of `--json`. */
  json(): unknown;
}

export interface Command {
  readonly process: ChildProcess;
  /** What it wrote to stderr so far. */
  stderr(): string;
  readonly ended: Promise<Printed>;
}

/** Starts `twinbox …` as an operator does: a process of its own. */
export function startTwinbox(env: NodeJS.ProcessEnv, args: readonly string[]): Command {
  const child = spawn(process.execPath, ['dist/cli/main.js', ...args], {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const out: Buffer[] = [];
  const err: Buffer[] = [];
  child.stdout.on('data', (chunk: Buffer) => out.push(chunk));
  child.stderr.on('data', (chunk: Buffer) => err.push(chunk));
  const ended = new Promise<Printed>((resolve) => {
    child.once('close', (code) => {
      const stdout = Buffer.concat(out).toString();
      resolve({
        code,
        stdout,
        stderr: Buffer.concat(err).toString(),
        json: () => JSON.parse(stdout) as unknown,
      });
    });
  });
  return { process: child, stderr: () => Buffer.concat(err).toString(), ended };
}

/** Runs `twinbox …` to its end. */
export function twinbox(env: NodeJS.ProcessEnv, ...args: string[]): Promise<Printed> {
  return startTwinbox(env, args).ended;
}
