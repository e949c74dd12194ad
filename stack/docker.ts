import { join } from 'node:path';
import type { Folder } from './folder.js';
import { run } from './programs.js';
import type { Service } from './service.js';
import { answers, placeOf } from './unit.js';
import type { Unit } from './unit.js';

const COMPOSE_FILE = join(import.meta.dirname, '..', 'compose.yaml');
/** The first start pulls the image. */
const READY_TIMEOUT_MS = 120_000;

/** Whether an engine answers and the compose plugin is there. */
export const dockerAnswers = async (): Promise<boolean> => {
  try {
    await run('docker', ['version', '--format', '{{.Server.Version}}'], { timeout: 5_000 });
    await run('docker', ['compose', 'version'], { timeout: 5_000 });
    return true;
  } catch {
    return false;
  }
};

/** The unit of a service that runs in a container of the stack's own compose project. */
export const dockerUnit = (folder: Folder, service: Service, log: (line: string) => void): Unit => {
  const compose = async (...args: string[]): Promise<string> => {
    const place = placeOf(folder, service, log);
    const ports = Object.entries(place.ports).map(([port, number]) => [portVariable(port), String(number)]);
    const env = {
      ...process.env,
      ...(Object.fromEntries(ports) as Record<string, string>),
      [`TWINBOX_${service.name.toUpperCase()}_PASSWORD`]: place.password,
    };
    const project = ['compose', '-p', `twinbox-${folder.id}`, '-f', COMPOSE_FILE];
    const { stdout } = await run('docker', [...project, ...args, service.name], { env });
    return stdout;
  };
  const act =
    (...args: string[]) =>
    async (): Promise<void> => {
      await compose(...args);
    };

  return {
    async look() {
      for (const state of ['running', 'paused'] as const) {
        const containers = await compose('ps', '--quiet', '--status', state);
        if (containers.trim() !== '') return { state, pids: [] };
      }
      return { state: 'stopped', pids: [] };
    },
    async start() {
      await compose('up', '--detach');
      await answers(service, placeOf(folder, service, log), READY_TIMEOUT_MS);
    },
    stop: act('stop'),
    kill: act('kill', '--signal', 'KILL'),
    pause: act('pause'),
    resume: act('unpause'),
    remove: act('rm', '--stop', '--force', '--volumes'),
  };
};

const portVariable = (port: string): string => `TWINBOX_${port.toUpperCase()}_PORT`;
