import { existsSync, readFileSync, rmSync } from 'node:fs';
import { stripVTControlCharacters } from 'node:util';
import { dockerUnit } from './docker.js';
import { logFile, makeFolder, passwords, readState, writeState } from './folder.js';
import type { Folder } from './folder.js';
import { startGuardian } from './guardian.js';
import type { Guardian } from './guardian.js';
import { withLock } from './lock.js';
import { mongodb } from './mongodb.js';
import { livingOwner, refuseForeignOwner, untilAbandonedIsStopped } from './owner.js';
import { choosePorts } from './ports.js';
import { postgres } from './postgres.js';
import { rabbitmq } from './rabbitmq.js';
import { redis } from './redis.js';
import { buildSecantus } from './secantus.js';
import { SERVICE_NAMES } from './service.js';
import type { Service, ServiceName, StackUrls } from './service.js';
import { findSources, givenUrl } from './sources.js';
import type { Source } from './sources.js';
import { answers, machineUnit, placeOf } from './unit.js';
import type { Unit, UnitState } from './unit.js';

export const SERVICES: Record<ServiceName, Service> = { postgres, rabbitmq, redis, mongodb };

export type ServiceStatus = {
  service: ServiceName;
  /** `given`: its URL stood in the environment; the stack neither started it nor will stop it. */
  source: 'given' | 'machine' | 'docker';
  state: UnitState | 'given';
  pids: number[];
  logFile: string;
};

export type Stack = {
  /**
   * Brings up what is not running and answering yet and resolves with the URLs once each service has done a real
   * operation. Throws one error that names everything that is missing or failed.
   */
  start(): Promise<StackUrls>;
  /** Starts one service alone, for example after `kill`. */
  startService(service: ServiceName): Promise<void>;
  /** Stops all services in good order (or only those named); data stay. Given services are left alone. */
  stop(services?: ServiceName[]): Promise<void>;
  /** SIGKILL to every process of the service; resolves when they are gone. Throws when it does not run. */
  kill(service: ServiceName): Promise<void>;
  restart(service: ServiceName): Promise<void>;
  /** SIGSTOP to every process of the service; resolves when all have stopped. Throws when it does not run. */
  pause(service: ServiceName): Promise<void>;
  resume(service: ServiceName): Promise<void>;
  status(): Promise<ServiceStatus[]>;
  /** The URLs of the last start. Throws when the stack was never started. */
  urls(): StackUrls;
  /** What the service printed so far. */
  logs(service: ServiceName): string;
  /** Stops all and deletes the stack's data. */
  remove(): Promise<void>;
};

export type Settings = { attached: boolean; build: boolean; log: (line: string) => void };

/** The stack of a folder. Nothing is read or started before a method is called. */
export const stackOf = (folder: Folder, { attached, build, log }: Settings): Stack => {
  let guardian: Guardian | undefined;

  const given = (service: Service): string | undefined =>
    givenUrl(service, existsSync(folder.path) ? passwords(folder)[service.name] : undefined);

  const ours = (names: readonly ServiceName[] = SERVICE_NAMES): Service[] =>
    names.map((name) => SERVICES[name]).filter((service) => given(service) === undefined);

  const unit = (service: Service, source?: Source): Unit => {
    const from = source?.from ?? readState(folder).sources[service.name] ?? 'machine';
    if (from === 'docker') return dockerUnit(folder, service, log);
    return machineUnit(folder, service, log, source?.from === 'machine' ? source.programs : undefined);
  };

  /** The unit of a service that this stack may disturb; one that was given is refused. */
  const own = (name: ServiceName, verb: string): Unit => {
    const service = SERVICES[name];
    if (given(service) === undefined) return unit(service);
    throw new Error(
      `${name} was given by ${service.variable}: a stack does not ${verb} what it did not start. ` +
        `Unset ${service.variable} to use a private server.`,
    );
  };

  /** A fault that cannot be made is an error: a test would go on to prove nothing. */
  const running = async (name: ServiceName, verb: string): Promise<Unit> => {
    const one = own(name, verb);
    if ((await one.look()).state !== 'stopped') return one;
    throw new Error(
      `${name} of stack ${folder.name} does not run, so there is nothing to ${verb}. ` +
        `Start it: npx tsx stack/main.ts start ${name} --name ${folder.name}`,
    );
  };

  const isFine = async (service: Service): Promise<boolean> => {
    const { state } = await unit(service).look();
    if (state === 'stopped') return false;
    if (state === 'paused') await unit(service).resume();
    return answers(service, placeOf(folder, service, log), 10_000).then(
      () => true,
      () => false,
    );
  };

  /** Remembers ports for services that do not run: the old ones while they are free. */
  const assign = async (services: Service[], sources: Map<ServiceName, Source>): Promise<void> => {
    const state = readState(folder);
    const starting = new Set(services);
    const others = SERVICE_NAMES.filter((name) => !starting.has(SERVICES[name]));
    const taken = new Set(others.flatMap((name) => Object.values(state.ports[name] ?? {})));
    for (const { name, portNames } of services) {
      state.ports[name] = await choosePorts(portNames, state.ports[name] ?? {}, taken);
      state.sources[name] = sources.get(name)?.from ?? 'machine';
    }
    writeState(folder, state);
  };

  const bringUp = async (services: Service[]): Promise<void> => {
    const sources = await findSources(services, log);
    for (const service of services) {
      const before = readState(folder).sources[service.name];
      if (before === 'machine') await machineUnit(folder, service, log).kill();
    }
    await assign(services, sources);
    const results = await Promise.allSettled(
      services.map(async (service) => {
        const startedAt = Date.now();
        guardian?.guard(service.name);
        await unit(service, sources.get(service.name)).start();
        log(`${service.name}: ready after ${((Date.now() - startedAt) / 1000).toFixed(1)} s`);
      }),
    );
    const reasons = results.flatMap((one) => (one.status === 'rejected' ? [one.reason as unknown] : []));
    if (reasons.length === 0) return;
    const told = reasons.map((reason) => (reason instanceof Error ? reason.message : String(reason)));
    throw new Error(told.join('\n\n'), { cause: reasons[0] });
  };

  /** Starts those of `services` that are not fine, under the guardian's eyes as long as this may be cut short. */
  const start = async (services: Service[]): Promise<void> => {
    if (services.length > 0) refuseOtherSystems();
    makeFolder(folder);
    passwords(folder);
    await untilAbandonedIsStopped(folder);
    await withLock(folder, async () => {
      if (attached) refuseForeignOwner(folder);
      if (build && services.includes(mongodb)) await buildSecantus(log);
      const fine = await Promise.all(services.map(isFine));
      const down = services.filter((_, index) => fine[index] !== true);
      // A stack that has an owner is watched already, whoever starts a part of it anew.
      if ((down.length > 0 || attached) && !livingOwner(folder)) guardian = await startGuardian(folder);
      if (attached) for (const service of services) guardian?.guard(service.name);
      try {
        if (down.length > 0) await bringUp(down);
      } finally {
        if (!attached) await release();
      }
    });
  };

  const release = async (): Promise<void> => {
    await guardian?.release();
    guardian = undefined;
  };

  const urls = (): StackUrls => {
    const state = readState(folder);
    const secrets = existsSync(folder.path) ? passwords(folder) : undefined;
    const found: Partial<StackUrls> = {};
    for (const service of Object.values(SERVICES)) {
      const url = given(service);
      const ports = state.ports[service.name];
      if (url !== undefined) found[service.variable] = url;
      else if (ports && secrets)
        Object.assign(found, service.urls({ ports, password: secrets[service.name] }));
      else
        throw new Error(
          `stack ${folder.name} was never started: npx tsx stack/main.ts start --name ${folder.name}`,
        );
    }
    const management = process.env['RABBITMQ_MANAGEMENT_URL'];
    if (given(rabbitmq) !== undefined && management) found.RABBITMQ_MANAGEMENT_URL = management;
    return found as StackUrls;
  };

  const stop = async (names?: ServiceName[]): Promise<void> => {
    if (!existsSync(folder.path)) return;
    await withLock(folder, () => Promise.all(ours(names).map((service) => unit(service).stop())));
    if (names === undefined) await release();
  };

  return {
    urls,
    stop,

    async start() {
      await start(ours());
      await Promise.all(
        SERVICE_NAMES.map(async (name) => {
          const url = given(SERVICES[name]);
          if (url !== undefined) await checkGiven(SERVICES[name], url);
        }),
      );
      return urls();
    },

    async startService(name) {
      own(name, 'start');
      await start([SERVICES[name]]);
    },

    kill: async (name) => (await running(name, 'kill')).kill(),
    pause: async (name) => (await running(name, 'pause')).pause(),
    resume: async (name) => (await running(name, 'resume')).resume(),

    async restart(name) {
      const one = own(name, 'restart');
      await withLock(folder, () => one.stop());
      await start([SERVICES[name]]);
    },

    status: () =>
      Promise.all(
        SERVICE_NAMES.map(async (service): Promise<ServiceStatus> => {
          const log = logFile(folder, service);
          if (given(SERVICES[service]) !== undefined) {
            return { service, source: 'given', state: 'given', pids: [], logFile: log };
          }
          const source = readState(folder).sources[service] ?? 'machine';
          return { service, source, ...(await unit(SERVICES[service]).look()), logFile: log };
        }),
      ),

    logs(name) {
      const path = logFile(folder, name);
      return existsSync(path) ? stripVTControlCharacters(readFileSync(path, 'utf8')) : '';
    },

    async remove() {
      if (!existsSync(folder.path)) return;
      await withLock(folder, () => Promise.all(SERVICE_NAMES.map((name) => unit(SERVICES[name]).remove())));
      await release();
      rmSync(folder.path, { recursive: true, force: true });
    },
  };
};

const refuseOtherSystems = (): void => {
  if (process.platform === 'linux') return;
  throw new Error(
    `a private stack needs Linux (this is ${process.platform}). Run: docker compose up -d\n` +
      'then set DATABASE_URL, RABBITMQ_URL, REDIS_URL and MONGODB_URI as compose.yaml says at its top.',
  );
};

const checkGiven = async (service: Service, url: string): Promise<void> => {
  try {
    await service.ready({ [service.variable]: url });
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new Error(
      `${service.name}: the server given by ${service.variable} does not answer: ${why}. ` +
        `Start it, correct ${service.variable}, or unset it to use a private server.`,
      { cause: error },
    );
  }
};
