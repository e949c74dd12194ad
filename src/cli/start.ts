import type { Readable } from 'node:stream';
import { ConfigurationError, describe, EXIT_CONFIG } from '../runtime/errors.js';
import { bounded } from '../runtime/loop.js';
import { UsageError } from './formation.js';
import type { Child } from './start-child.js';
import { runFormation, type Formation, type StateChange } from './start-formation.js';
import { createSink, prefixOf, pumpLines, wantsColor, type Sink } from './start-output.js';
import { readPlan, type PlannedProcess, type PlanOptions } from './start-plan.js';

export { parseStartArgs, type StartArgs, type StartUsage } from './start-args.js';
export type { StateChange } from './start-formation.js';

export interface StartOptions extends PlanOptions {
  /** Start a process that ended anew, instead of stopping the others. */
  readonly restart: boolean;
  /** From SIGTERM to SIGKILL, in milliseconds. */
  readonly timeoutMs: number;
  /** Lines as they were written: no prefix, no colour. */
  readonly raw: boolean;
  readonly stdout: NodeJS.WritableStream;
  readonly stderr: NodeJS.WritableStream;
  /** Stops the formation as SIGTERM does. */
  readonly signal: AbortSignal;
  readonly onState?: (change: StateChange) => void;
}

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** Runners and platforms send a signal several times; only one that comes later than this was meant. */
const SECOND_SIGNAL_MS = 2_000;
/** How long the outputs may stay open when every process has ended (somebody else holds the pipe). */
const LAST_LINES_MS = 1_000;

/**
 * Runs the process types of a Procfile until they end, and answers the exit code:
 * 0 stopped when told to, each by itself · 1 when told to stop something had to be killed or failed, or the
 * output broke · 2 wrong formation · 78 wrong Procfile or settings, or a process that ended with 78 · otherwise
 * the code of the process whose end stopped the others (128 + n for a signal; a 0 stays 0 only if all the
 * others ended well).
 *
 * While it runs it answers to SIGINT, SIGTERM and SIGHUP: each process gets one SIGTERM; a second signal kills
 * only if it comes more than 2 s after the first. Never rejects for what a process or an operator did.
 */
export async function start(options: StartOptions): Promise<number> {
  let plan: PlannedProcess[];
  try {
    plan = readPlan(options);
  } catch (error) {
    if (!(error instanceof UsageError) && !(error instanceof ConfigurationError)) throw error;
    options.stderr.write(`twinbox start: ${error.message}\n`);
    return error instanceof UsageError ? 2 : EXIT_CONFIG;
  }
  if (options.signal.aborted) return 0;

  const output = openOutput(plan, options, (error) => {
    formation.stop({ why: `the output cannot be written (${describe(error)})`, code: 1 });
  });
  const formation: Formation = runFormation(plan, {
    cwd: options.cwd,
    restart: options.restart,
    timeoutMs: options.timeoutMs,
    attach: output.attach,
    notice: output.notice,
    onState(change) {
      if (change.state === 'stopping') output.hurry();
      try {
        options.onState?.(change);
      } catch (error) {
        // A watcher's fault must not leave processes without a runner.
        output.notice(`onState failed: ${describe(error)}`);
      }
    },
  });
  const release = listen(formation, options.signal);
  try {
    return await formation.done;
  } finally {
    await output.close();
    release();
  }
}

/** Hands the signals to the formation; the answer takes the handlers away again. */
function listen(formation: Formation, signal: AbortSignal): () => void {
  let firstMs: number | undefined;
  const onSignal = (name: NodeJS.Signals): void => {
    firstMs ??= performance.now();
    formation.stop({ why: name });
    if (performance.now() - firstMs > SECOND_SIGNAL_MS) formation.kill(`${name} came again`);
  };
  const onAbort = (): void => formation.stop({ why: 'told to stop' });
  // Should the runner end by an error of its own, the processes must not stay behind.
  const onExit = (): void => formation.stop({ why: 'the runner ends' });

  for (const name of SIGNALS) process.on(name, onSignal);
  process.on('exit', onExit);
  signal.addEventListener('abort', onAbort);
  return () => {
    for (const name of SIGNALS) process.off(name, onSignal);
    process.off('exit', onExit);
    signal.removeEventListener('abort', onAbort);
  };
}

interface Output {
  attach(child: Child, process: PlannedProcess): void;
  notice(text: string): void;
  hurry(): void;
  close(): Promise<void>;
}

/** The processes' stdout goes to the runner's, their stderr and the runner's own words to its stderr. */
function openOutput(
  plan: readonly PlannedProcess[],
  { stdout, stderr, raw, env }: StartOptions,
  onBroken: (error: Error) => void,
): Output {
  const own = 'twinbox';
  const width = Math.max(own.length, ...plan.map(({ name }) => name.length));
  const sinks = { stdout: createSink(stdout, onBroken), stderr: createSink(stderr, onBroken) };
  const colored = { stdout: wantsColor(stdout, env), stderr: wantsColor(stderr, env) };
  const pumps = new Map<Readable, Promise<void>>();

  const pump = (source: Readable | undefined, sink: Sink, prefix: string): void => {
    if (source === undefined) return;
    const pumping = pumpLines(source, sink, prefix).finally(() => pumps.delete(source));
    pumps.set(source, pumping);
  };
  return {
    attach({ outputs }, { name, type }) {
      for (const which of ['stdout', 'stderr'] as const) {
        const color = colored[which] ? { color: type.index } : {};
        pump(outputs[which], sinks[which], raw ? '' : prefixOf(name, { width, ...color }));
      }
    },
    notice: (text) => void sinks.stderr.write(Buffer.from(`${prefixOf(own, { width })}${text}\n`)),
    hurry() {
      sinks.stdout.hurry();
      sinks.stderr.hurry();
    },
    async close() {
      await bounded('the last lines', LAST_LINES_MS, Promise.all(pumps.values())).catch(() => undefined);
      for (const source of pumps.keys()) source.destroy();
      await Promise.all([sinks.stdout.close(), sinks.stderr.close()]);
    },
  };
}
