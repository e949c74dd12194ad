import { spawn } from 'node:child_process';
import { once } from 'node:events';

/** A Node process that does not outlive the bench. */
export interface Owned {
  readonly pid: number;
  /** @throws when it has ended, with its exit code */
  check(): void;
  stop(signal: 'SIGTERM' | 'SIGKILL'): Promise<void>;
}

/**
 * @param args what follows `node`
 * @throws when it cannot be started
 */
export async function startOwned(args: readonly string[], env: NodeJS.ProcessEnv): Promise<Owned> {
  // The standard output of the bench is its result; what a child has to say goes to standard error.
  const child = spawn(process.execPath, args, { env, stdio: ['ignore', 2, 2] });
  const ended = once(child, 'exit');
  const kill = (): void => void child.kill('SIGKILL');
  process.once('exit', kill);
  await once(child, 'spawn');
  return {
    pid: child.pid as number,
    check: () => {
      if (child.exitCode !== null || child.signalCode !== null)
        throw new Error(
          `node ${args.join(' ')} ended (${child.exitCode ?? child.signalCode}): its last lines stand above`,
        );
    },
    stop: async (signal) => {
      child.kill(signal);
      await ended;
      process.off('exit', kill);
    },
  };
}
