import { mkdirSync, readFileSync, renameSync, statSync } from 'node:fs';
import { setTimeout as wait } from 'node:timers/promises';
import { logFile, passwords, readLaunched, readState, serviceFolder, writeLaunched } from './folder.js';
import type { Folder } from './folder.js';
import { isAlive, launch, processesOf, signal, untilNone } from './processes.js';
import type { Launched } from './processes.js';
import type { Place, Programs, Service } from './service.js';

const READY_TIMEOUT_MS = 90_000;
const STOP_TIMEOUT_MS = 20_000;

export type UnitState = 'running' | 'paused' | 'stopped';

/** One service of one stack, wherever it runs. Every method may be repeated. */
export type Unit = {
  /** What its processes do now, and their ids where they are this machine's. */
  look(): Promise<{ state: UnitState; pids: number[] }>;
  /** Launches it and waits until a real operation succeeds. What is left of a killed run is ended first. */
  start(): Promise<void>;
  /** In good order, then by force. */
  stop(): Promise<void>;
  /** SIGKILL to every process, and waits until they are gone. */
  kill(): Promise<void>;
  pause(): Promise<void>;
  resume(): Promise<void>;
  /** Stops it and drops what it keeps outside the stack's folder. */
  remove(): Promise<void>;
};

/** The unit of a service that runs by programs of this machine. Without programs it can do all but start. */
export const machineUnit = (
  folder: Folder,
  service: Service,
  log: (line: string) => void,
  programs?: Programs,
): Unit => {
  const mark = `${folder.path}:${service.name}`;
  const processes = () => processesOf(mark, readLaunched(folder, service.name));

  const kill = async (): Promise<void> => {
    // Listing again catches what was forked between the listing and the signal.
    const gone = await untilNone(processes, (left) => signal(left, 'SIGKILL'), STOP_TIMEOUT_MS);
    if (!gone) throw new Error(`${service.name}: processes ${pidsOf(processes())} survive SIGKILL`);
  };

  const stop = async (): Promise<void> => {
    signal(processes(), 'SIGCONT');
    for (const one of readLaunched(folder, service.name).reverse()) {
      const left = () => processes().filter(({ pid }) => pid === one.pid);
      signal([one], service.stopSignal);
      await untilNone(left, () => undefined, STOP_TIMEOUT_MS);
    }
    await kill();
  };

  return {
    kill,

    async look() {
      const found = processes();
      const isPaused = found.some(({ state }) => state === 'T');
      const state = found.length === 0 ? 'stopped' : isPaused ? 'paused' : 'running';
      return { state, pids: found.map(({ pid }) => pid) };
    },

    async start() {
      if (!programs) throw new Error(`${service.name}: its programs are not known`);
      await kill();
      const place = placeOf(folder, service, log);
      mkdirSync(place.folder, { recursive: true, mode: 0o700 });
      await service.prepare(place, programs);
      setAside(logFile(folder, service.name));
      const launched: Launched[] = [];
      for (const command of await service.commands(place, programs)) {
        launched.push(await launch(command, mark, logFile(folder, service.name)));
        writeLaunched(folder, service.name, launched);
      }
      try {
        await answers(service, place, READY_TIMEOUT_MS, () => launched.every(isAlive));
      } catch (error) {
        await kill();
        throw new Error(failure(service, folder, error), { cause: error });
      }
    },

    stop,

    async pause() {
      const moving = () => processes().filter(({ state }) => state !== 'T');
      const stopped = await untilNone(moving, (left) => signal(left, 'SIGSTOP'), STOP_TIMEOUT_MS);
      if (!stopped) throw new Error(`${service.name}: processes ${pidsOf(moving())} do not stop`);
    },

    async resume() {
      const still = () => processes().filter(({ state }) => state === 'T');
      await untilNone(still, (left) => signal(left, 'SIGCONT'), STOP_TIMEOUT_MS);
    },

    async remove() {
      await stop();
      await service.drop?.(placeOf(folder, service, log));
    },
  };
};

export const placeOf = (folder: Folder, service: Service, log: (line: string) => void): Place => ({
  folder: serviceFolder(folder, service.name),
  id: folder.id,
  ports: readState(folder).ports[service.name] ?? {},
  password: passwords(folder)[service.name],
  log,
});

/**
 * Resolves when one real operation succeeded. Throws the last failure after `timeoutMs`, or as soon as
 * `stillRuns` says that waiting is in vain.
 */
export const answers = async (
  service: Service,
  place: Place,
  timeoutMs: number,
  stillRuns: () => boolean = () => true,
): Promise<void> => {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    try {
      await service.setUp?.(place);
      await service.ready(service.urls(place));
      return;
    } catch (error) {
      if (!stillRuns()) throw new Error('its process ended', { cause: error });
      if (Date.now() > deadline) throw error;
      await wait(100);
    }
  }
};

/** Keeps a log from growing for ever: at a start, a large one makes room for a new one. */
const setAside = (log: string): void => {
  const size = statSync(log, { throwIfNoEntry: false })?.size ?? 0;
  if (size > 10 * 1024 * 1024) renameSync(log, `${log}.old`);
};

const pidsOf = (list: { pid: number }[]): string => list.map(({ pid }) => pid).join(', ');

const failure = (service: Service, folder: Folder, error: unknown): string => {
  const log = logFile(folder, service.name);
  const tail = readFileSync(log, 'utf8').trimEnd().split('\n').slice(-15).join('\n');
  const why = error instanceof Error ? error.message : String(error);
  return `${service.name} did not become ready: ${why}\nthe end of ${log}:\n${tail}`;
};
