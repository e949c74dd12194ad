import { spawn, type ChildProcessByStdio } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream, mkdirSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';

type Child = ChildProcessByStdio<null, Readable, Readable>;

export interface ProcessesOptions {
  readonly root: string;
  readonly logFile: string;
  readonly env: NodeJS.ProcessEnv;
  /** Process types of the Procfile, in its order. */
  readonly types: readonly string[];
  /** Told when something that should run has ended. */
  readonly onEnd: (what: string) => void;
}

export interface Processes {
  readonly consoleUrl: string;
  readonly webhookUrl: string;
  stop(): Promise<void>;
}

const READY_MS = 60_000;
const STEP = 100; // ports between two process types, as `twinbox start` gives them

/**
 * Migrates, starts every process type of the Procfile and the application, and resolves when all are ready.
 * @throws naming what did not become ready, and where its log is
 */
export async function startProcesses(options: ProcessesOptions): Promise<Processes> {
  const { root, env, types } = options;
  mkdirSync(join(options.logFile, '..'), { recursive: true });
  const log = createWriteStream(options.logFile, { flags: 'a' });
  const run = (args: readonly string[], extra: NodeJS.ProcessEnv = {}): Child => {
    const child = spawn(process.execPath, args, {
      cwd: root,
      env: { ...env, ...extra },
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    });
    child.stdout.pipe(log, { end: false });
    child.stderr.pipe(log, { end: false });
    return child;
  };
  const migration = run(['dist/cli/main.js', 'migrate']);
  if (((await once(migration, 'exit')) as [number | null])[0] !== 0)
    throw new Error(`twinbox migrate failed, see ${options.logFile}`);

  const basePort = await freeRange(types.length);
  let stopping = false;
  const formation = run(['dist/cli/main.js', 'start', '--raw', '--port', String(basePort)]);
  const application = run(['--import', 'tsx', 'examples/deliveries/main.ts'], { DELIVERIES_PORT: '0' });
  const ended = [formation, application].map(async (child, index) => {
    await once(child, 'exit');
    if (!stopping) options.onEnd(index === 0 ? 'a process of the Procfile' : 'the application');
  });
  const stop = async (): Promise<void> => {
    stopping = true;
    formation.kill('SIGTERM');
    application.kill('SIGTERM');
    await Promise.all(ended);
    log.end();
  };
  try {
    const port = await listeningPort(application);
    await Promise.all(
      types.map((type, index) => ready(type, basePort + index * STEP, formation, options.logFile)),
    );
    return {
      consoleUrl: `http://127.0.0.1:${basePort}`,
      webhookUrl: `http://127.0.0.1:${port}/webhooks/github`,
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function listeningPort(application: Child): Promise<number> {
  for await (const line of createInterface({ input: application.stdout })) {
    const found = /"event":"deliveries\.listening".*?"port":(\d+)/.exec(line)?.[1];
    if (found !== undefined) return Number(found);
  }
  throw new Error('the application ended before it listened');
}

async function ready(type: string, port: number, formation: Child, logFile: string): Promise<void> {
  const deadline = Date.now() + READY_MS;
  let why = 'no answer yet';
  while (Date.now() < deadline && formation.exitCode === null) {
    try {
      const response = await fetch(`http://127.0.0.1:${port}/readyz`);
      if (response.ok) return;
      why = (await response.text()).trim();
    } catch {
      // not listening yet
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`${type} is not ready (${why}), see ${logFile}`);
}

/** A base port whose every hundredth port is free for `count` process types. */
async function freeRange(count: number): Promise<number> {
  for (let base = 21_000; base < 60_000; base += 1_000) {
    const free = await Promise.all(Array.from({ length: count }, (_, index) => isFree(base + index * STEP)));
    if (free.every(Boolean)) return base;
  }
  throw new Error('no free ports on 127.0.0.1 between 21000 and 60000');
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}
