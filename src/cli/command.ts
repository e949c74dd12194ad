import { hostname, userInfo } from 'node:os';
import { explainPostgres } from './postgres-fault.js';

/** What a command reads and where it writes: results to stdout, everything else to stderr. */
export interface CommandContext {
  readonly argv: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  readonly stdout: { write(text: string): unknown };
  readonly stderr: { write(text: string): unknown };
}

/** The command was written in a way that means nothing: exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/**
 * Runs `work`; `--help` shows the usage (0), a UsageError says what is wrong, then the usage (2).
 * @returns the exit code
 * @throws whatever else `work` throws; what Postgres refuses, with the fix
 */
export async function withUsage(
  usage: string,
  { argv, stdout, stderr }: CommandContext,
  work: () => Promise<number>,
): Promise<number> {
  if (argv.includes('--help') || argv.includes('-h')) {
    stdout.write(usage);
    return 0;
  }
  try {
    return await work();
  } catch (error) {
    const explained = explainPostgres(error);
    if (explained !== undefined) throw new Error(explained, { cause: error });
    if (!(error instanceof UsageError)) throw error;
    stderr.write(`${error.message}\n\n${usage}`);
    return 2;
  }
}

/** What `parse` answers, with its complaint as a UsageError. */
export function usageOf<T>(parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    throw new UsageError((error as Error).message, { cause: error });
  }
}

/**
 * A whole number of an option.
 * @throws {UsageError} when it is none, or out of its range
 */
export function wholeNumber(option: string, text: string, min: number, max: number): number {
  const value = /^\d{1,15}$/.test(text) ? Number(text) : NaN;
  if (!(value >= min && value <= max))
    throw new UsageError(`${option} takes a whole number from ${min} to ${max}, not ${JSON.stringify(text)}`);
  return value;
}

/** Aborts on Ctrl-C or a stop, once; `end` gives the signals back. */
export function untilInterrupted(): { readonly signal: AbortSignal; end(): void } {
  const interrupted = new AbortController();
  const stop = (): void => interrupted.abort();
  process.on('SIGINT', stop);
  process.on('SIGTERM', stop);
  return {
    signal: interrupted.signal,
    end: () => {
      process.off('SIGINT', stop);
      process.off('SIGTERM', stop);
    },
  };
}

/** The person and the machine, for the audit. */
export function operator(): string {
  let user: string;
  try {
    user = userInfo().username;
  } catch {
    user = `uid ${process.getuid?.() ?? 'unknown'}`; // in a container, as a rule
  }
  return `${user}@${hostname()}`;
}
