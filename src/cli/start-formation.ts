import { EXIT_CONFIG } from '../runtime/errors.js';
import { pause } from '../runtime/loop.js';
import { clearGroup, launch, type Child, type End } from './start-child.js';
import { launchOf } from './start-command.js';
import { nextRestart, type PlannedProcess } from './start-plan.js';

/** What happens to the processes, for whoever watches (times in milliseconds). */
export type StateChange =
  | { readonly state: 'started'; readonly name: string; readonly pid: number; readonly port: number }
  | { readonly state: 'ended'; readonly name: string; readonly code: number; readonly how: string }
  | { readonly state: 'restarting'; readonly name: string; readonly delayMs: number }
  | { readonly state: 'stopping'; readonly why: string }
  | { readonly state: 'killed'; readonly name: string };

/** Why all processes are stopped; `code` is that of the process which caused it, absent when told to. */
export interface StopCause {
  readonly why: string;
  readonly code?: number;
}

export interface FormationOptions {
  readonly cwd: string;
  readonly restart: boolean;
  readonly timeoutMs: number;
  /** Takes up the output of a started process. */
  attach(child: Child, process: PlannedProcess): void;
  /** Tells the operator. */
  notice(text: string): void;
  onState(change: StateChange): void;
}

export interface Formation {
  /** Tells every process to stop, once; the first cause counts. */
  stop(cause: StopCause): void;
  /** SIGKILLs what still lives. */
  kill(why: string): void;
  /** The exit code, when nothing lives any more. */
  readonly done: Promise<number>;
}

/**
 * Runs the processes until they are stopped or one of them ends. All are stopped at the same time: every part
 * bears that its neighbours are gone, so an order would only make the drain longer.
 */
export function runFormation(plan: readonly PlannedProcess[], options: FormationOptions): Formation {
  const { cwd, restart, timeoutMs, attach, notice, onState } = options;
  const children = new Set<Child>();
  const stopping = new AbortController();
  let cause: StopCause | undefined;
  let timer: NodeJS.Timeout | undefined;
  let clean = true;

  const kill = (why: string): void => {
    for (const child of children) {
      if (!child.alive()) continue;
      clean = false;
      child.kill();
      notice(`${child.name} (pid ${child.pid ?? 0}): SIGKILL, ${why}`);
      onState({ state: 'killed', name: child.name });
    }
  };

  const stop = (why: StopCause): void => {
    if (cause !== undefined) return;
    cause = why;
    const living = [...children].filter((child) => child.alive());
    const count = living.length === 1 ? '1 process' : `${living.length} processes`;
    notice(`${why.why}: stopping ${count}, at most ${timeoutMs / 1_000} s`);
    onState({ state: 'stopping', why: why.why });
    for (const child of living) child.terminate();
    timer = setTimeout(() => kill(`not ended ${timeoutMs / 1_000} s after SIGTERM`), timeoutMs);
    stopping.abort();
  };

  /** To the end of one process: of its program, and of all that it started. */
  const runOnce = async (process: PlannedProcess): Promise<void> => {
    const child = launch(process.name, launchOf(process.type.command, process.env), {
      cwd,
      env: process.env,
    });
    children.add(child);
    attach(child, process);
    if (child.pid !== undefined)
      onState({ state: 'started', name: process.name, pid: child.pid, port: process.port });

    const end = await child.ended;
    onState({ state: 'ended', name: process.name, ...end });
    if (cause !== undefined) {
      if (!endedWell(end)) clean = false;
      notice(`${process.name} ${end.how}`);
    } else if (!restart || end.code === EXIT_CONFIG) {
      stop({ why: `${process.name} ${end.how}`, code: end.code });
    } else notice(`${process.name} ${end.how}`);

    const leftOvers = await clearGroup(child, timeoutMs);
    if (leftOvers.killed) {
      clean = false;
      notice(`${process.name}: SIGKILL to what it had started and left behind`);
    }
    children.delete(child);
  };

  const keepRunning = async (process: PlannedProcess): Promise<void> => {
    let failures = 0;
    for (;;) {
      const beganMs = performance.now();
      await runOnce(process);
      if (cause !== undefined) return;
      const next = nextRestart(failures, performance.now() - beganMs, Math.random());
      failures = next.failures;
      notice(`${process.name} starts again in ${(next.delayMs / 1_000).toFixed(1)} s`);
      onState({ state: 'restarting', name: process.name, delayMs: next.delayMs });
      await pause(next.delayMs, stopping.signal);
      if (stopping.signal.aborted) return;
    }
  };

  const done = Promise.all(plan.map(keepRunning)).then(() => {
    clearTimeout(timer);
    return exitCode(cause, clean);
  });
  return { stop, kill, done };
}

/** The answer to SIGTERM: drained, or a program that has no answer of its own. */
function endedWell({ code }: End): boolean {
  return code === 0 || code === 143;
}

/**
 * The code of the process that brought the others down (also when those then ended badly); where nothing went
 * wrong so far, whether the stop was clean.
 */
function exitCode(cause: StopCause | undefined, clean: boolean): number {
  if (cause?.code !== undefined && cause.code !== 0) return cause.code;
  return clean ? 0 : 1;
}
