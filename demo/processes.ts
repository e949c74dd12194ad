import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';

export interface ProcessesOptions {
  readonly root: string;
  /** Where the log and the Procfile of the demo are put. */
  readonly folder: string;
  readonly env: NodeJS.ProcessEnv;
  /** A process that dies is started anew, for people who try kill -9; else its end ends the rest. */
  readonly restart: boolean;
  /** Told when the formation has ended though nobody stopped it. */
  readonly onEnd: (what: string) => void;
}

export interface Processes {
  readonly logFile: string;
  readonly consoleUrl: string;
  readonly webhookUrl: string;
  stop(): Promise<void>;
}

const READY_MS = 60_000;
const STEP = 100; // ports between two process types, as `twinbox start` gives them
const APPLICATION = 'deliveries: node --import tsx examples/deliveries/main.ts';

/**
 * Migrates, starts every process type of the Procfile and the application, and resolves when all are ready.
 * @throws naming what did not become ready, and where its log is
 */
export async function startProcesses({
  root,
  folder,
  env,
  restart,
  onEnd,
}: ProcessesOptions): Promise<Processes> {
  mkdirSync(folder, { recursive: true });
  const logFile = join(folder, 'twinbox.log');
  const procfile = join(folder, 'Procfile');
  writeFileSync(procfile, `${readFileSync(join(root, 'Procfile'), 'utf8')}\n${APPLICATION}\n`);
  const types = [...readFileSync(procfile, 'utf8').matchAll(/^([\w-]+):/gm)].map(([, name]) => name ?? '');
  const basePort = await freeRange(types.length);
  const portOf = (type: string): number => basePort + types.indexOf(type) * STEP;

  const log = createWriteStream(logFile, { flags: 'a' });
  const twinbox = (args: readonly string[]): ChildProcess => {
    const child = spawn(process.execPath, ['dist/cli/main.js', ...args], {
      cwd: root,
      env: { ...env, DELIVERIES_PORT: String(portOf('deliveries')) },
      // By pipes and not straight into the file: should this process be killed, their other end is gone, and
      // the runner stops what it runs when it finds that out.
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true, // a Ctrl-C reaches this process alone, which stops things in order
    });
    for (const stream of [child.stdout, child.stderr]) stream.pipe(log, { end: false });
    return child;
  };
  const migration = twinbox(['migrate']);
  if (((await once(migration, 'exit')) as [number | null])[0] !== 0)
    throw new Error(`twinbox migrate failed, see ${logFile}`);
  const formation = twinbox([
    'start',
    '--raw',
    '--procfile',
    procfile,
    '--port',
    String(basePort),
    ...(restart ? ['--restart'] : []),
  ]);
  let stopping = false;
  const ended = once(formation, 'exit').then(() => {
    if (!stopping) onEnd('the formation');
  });
  const stop = async (): Promise<void> => {
    stopping = true;
    formation.kill('SIGTERM');
    await ended;
    log.end();
  };
  try {
    await Promise.all(
      types.filter((type) => type !== 'release').map((type) => ready(type, portOf(type), formation, logFile)),
    );
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    logFile,
    consoleUrl: `http://127.0.0.1:${portOf('web')}`,
    webhookUrl: `http://127.0.0.1:${portOf('deliveries')}/webhooks/github`,
    stop,
  };
}

async function ready(type: string, port: number, formation: ChildProcess, logFile: string): Promise<void> {
  const deadline = Date.now() + READY_MS;
  let why = 'no answer yet';
  while (Date.now() < deadline && formation.exitCode === null) {
    try {
      const response = await fetch(
        `http://127.0.0.1:${port}${type === 'deliveries' ? '/healthz' : '/readyz'}`,
      );
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
