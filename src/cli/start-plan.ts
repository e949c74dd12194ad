import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { ConfigurationError, describe } from '../runtime/errors.js';
import { backoffMs } from '../runtime/retry.js';
import { instancesOf, parseFormation, type Instance } from './formation.js';
import { parseProcfile } from './procfile.js';
import { basePortOf, parseEnvFile } from './start-env.js';

export interface PlanOptions {
  readonly procfile: string;
  readonly cwd: string;
  readonly formation?: string;
  readonly env: NodeJS.ProcessEnv;
  readonly envFile?: string;
  readonly basePort?: number;
}

/** One process to start, with its whole environment. */
export interface PlannedProcess extends Instance {
  readonly env: NodeJS.ProcessEnv;
}

/**
 * Reads the Procfile and the settings, and decides what is started. The shell wins over the `.env` file;
 * `PORT`, `PS` and `TWINBOX_PROCESS` are each process's own.
 * Throws ConfigurationError (files) or UsageError (formation, ports).
 */
export function readPlan({
  procfile,
  cwd,
  formation,
  env,
  envFile,
  basePort,
}: PlanOptions): PlannedProcess[] {
  const types = parseProcfile(readProcfile(resolve(cwd, procfile)));
  const settings = { ...readEnvFile(cwd, envFile), ...env };
  const counts = parseFormation(formation, types);
  return instancesOf(types, counts, basePort ?? basePortOf(settings)).map((instance) => ({
    ...instance,
    env: {
      ...settings,
      PORT: String(instance.port),
      PS: instance.name,
      TWINBOX_PROCESS: instance.name,
    },
  }));
}

function readProcfile(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new ConfigurationError(
      `there is no readable Procfile at ${path} (${describe(error)}); name another one with --procfile`,
    );
  }
}

/** A file that was named must be there; `.env` beside the Procfile may be. */
function readEnvFile(cwd: string, named: string | undefined): Record<string, string> {
  const path = resolve(cwd, named ?? '.env');
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if (named === undefined && (error as NodeJS.ErrnoException).code === 'ENOENT') return {};
    throw new ConfigurationError(`the settings file ${path} cannot be read (${describe(error)})`);
  }
  return parseEnvFile(text);
}

/** A process that ran this long was sound: the next failure is counted as the first. */
const STABLE_MS = 60_000;

/**
 * When a process that ended is started anew: after 1–2 s, then twice as long each time up to 15–30 s, drawn at
 * random within; `failures` is what to hand in the next time. All times in milliseconds.
 */
export function nextRestart(
  failures: number,
  ranMs: number,
  random: number,
): { failures: number; delayMs: number } {
  const now = ranMs >= STABLE_MS ? 1 : failures + 1;
  return { failures: now, delayMs: backoffMs(now, { firstMs: 2_000, capMs: 30_000 }, random) };
}
