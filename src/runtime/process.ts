import { hostname } from 'node:os';
import { readConfig } from './config.js';
import { ConfigurationError, describe, EXIT_CONFIG, StoppedEarly, toError } from './errors.js';
import { serveHealth, type HealthServer } from './health.js';
import { createLog, type Log } from './log.js';
import { noProbe, type Probe } from './probe.js';
import type { Config, NeededName } from './settings.js';

/** What a process type is made of: what it needs, and how it starts. */
export interface ProcessType<N extends NeededName> {
  readonly name: string;
  readonly needs: readonly N[];
  /** Settings of others that may stand in the environment. */
  readonly knownSettings?: readonly string[];
  /** False: the type serves `/healthz` and `/readyz` on its own port itself. */
  readonly health?: boolean;
  start(context: ProcessContext<N>): Promise<Service>;
}

export interface ProcessContext<N extends NeededName> {
  readonly config: Config<N>;
  readonly env: NodeJS.ProcessEnv;
  readonly log: Log;
  /** Unique for this run of this process: the owner of its leases and locks. */
  readonly instance: string;
  readonly probe: Probe;
  /** Aborts when the process begins to stop, even before `start` has ended: what waits in it ends then. */
  readonly signal: AbortSignal;
  /** Ends the process as failed: for what only a restart can mend. */
  readonly fail: (error: Error) => void;
}

/** A started process type. */
export interface Service {
  /** Why it is not ready; undefined when it is. */
  ready(): string | undefined;
  /** Stops taking, finishes what is in flight, settles it, closes its stores. Safe to call once. */
  stop(): Promise<void>;
}

export interface RunOptions {
  readonly env?: NodeJS.ProcessEnv;
  readonly probe?: Probe;
}

/**
 * Runs a process type to its end, and ends the process: 0 after a stop in time, 1 after a failure or a stop
 * that took longer than SHUTDOWN_TIMEOUT_MS, 78 for a fault of the configuration.
 * SIGTERM and SIGINT stop it; more of them shorten nothing (runners and platforms send several).
 */
export async function runProcess<N extends NeededName>(
  type: ProcessType<N>,
  { env = process.env, probe = noProbe }: RunOptions = {},
): Promise<void> {
  const exit = await run(type, env, probe);
  process.exit(exit);
}

async function run<N extends NeededName>(
  type: ProcessType<N>,
  env: NodeJS.ProcessEnv,
  probe: Probe,
): Promise<number> {
  const name = env.TWINBOX_PROCESS ?? type.name;
  let log = createLog({ level: 'info', process: name });
  let health: HealthServer | undefined;
  const ending = endOfProcess();
  try {
    const config = readConfig(env, type.needs, { process: type.name, known: type.knownSettings ?? [] });
    log = createLog({ level: config.LOG_LEVEL, process: name });
    const instance = `${name}@${hostname()}#${process.pid}.${Date.now().toString(36)}`;
    let service: Service | undefined;
    let stopping = false;
    const ready = (): string | undefined =>
      stopping ? 'stopping' : service === undefined ? 'starting' : service.ready();
    if (config.PORT !== 0 && type.health !== false)
      health = await serveHealth(config.HOST, config.PORT, ready);

    const starting = type.start({
      config,
      env,
      log,
      instance,
      probe,
      signal: ending.signal,
      fail: ending.fail,
    });
    // A stop may come before the start is over: a store that cannot be reached must not hold the process.
    const first = await Promise.race([starting, ending.promise]);
    if ('ready' in first) {
      service = first;
      log.info({ event: 'process.started', instance, port: health?.port }, `${type.name} runs`);
    }

    const reason = await ending.promise;
    stopping = true;
    log[reason.error === undefined ? 'info' : 'fatal'](
      { event: 'process.stopping', err: reason.error },
      reason.why,
    );
    const inTime = await stopWithin(config.SHUTDOWN_TIMEOUT_MS, starting, log);
    await health?.close();
    if (reason.error instanceof ConfigurationError) return reportStartFault(type.name, reason.error, log);
    return reason.error === undefined && inTime ? 0 : 1;
  } catch (thrown) {
    await health?.close();
    return reportStartFault(type.name, thrown, log);
  }
}

async function stopWithin(timeoutMs: number, starting: Promise<Service>, log: Log): Promise<boolean> {
  const began = Date.now();
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(() => resolve(false), timeoutMs);
  });
  try {
    const done = await Promise.race([
      starting.then((service) => service.stop()).then(() => true as const),
      late,
    ]);
    if (done) log.info({ event: 'process.stopped', durationMs: Date.now() - began }, 'stopped');
    else
      log.error(
        { event: 'process.stop.late', timeoutMs },
        'did not stop in time (SHUTDOWN_TIMEOUT_MS); leaving what is in flight to the others',
      );
    return done;
  } catch (error) {
    if (error instanceof StoppedEarly) return true;
    log.error({ event: 'process.stop.failed', err: error }, 'stopping failed');
    return false;
  } finally {
    clearTimeout(timer);
  }
}

function reportStartFault(name: string, thrown: unknown, log: Log): number {
  if (thrown instanceof ConfigurationError) {
    process.stderr.write(`${name} cannot start: ${thrown.message}\n`);
    return EXIT_CONFIG;
  }
  log.fatal(
    { event: 'process.failed', err: toError(thrown) },
    `${name} could not start: ${describe(thrown)}`,
  );
  return 1;
}

interface Ending {
  readonly promise: Promise<{ why: string; error?: Error }>;
  readonly signal: AbortSignal;
  readonly fail: (error: Error) => void;
}

function endOfProcess(): Ending {
  let end: (reason: { why: string; error?: Error }) => void = () => undefined;
  const promise = new Promise<{ why: string; error?: Error }>((resolve) => {
    end = resolve;
  });
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const)
    process.on(signal, () => end({ why: `${signal}: stopping` }));
  // Signal handlers keep nothing alive: without this a type that only waits would end by itself, with 13.
  setInterval(() => undefined, 2 ** 30);
  const fail = (error: Error): void => end({ why: `failed: ${describe(error)}`, error });
  // State after an uncaught error is unknown: stop what can be stopped, and let the supervisor start anew.
  process.on('uncaughtException', fail);
  process.on('unhandledRejection', (thrown) => fail(toError(thrown)));
  const stopping = new AbortController();
  void promise.then(() => stopping.abort());
  return { promise, signal: stopping.signal, fail };
}
