import { installPackages } from './apt.js';
import { dockerAnswers } from './docker.js';
import { isMissing } from './service.js';
import type { Missing, Programs, Service, ServiceName } from './service.js';

/** Where a service comes from. A given one is never stopped and never wiped. */
export type Source = { from: 'machine'; programs: Programs } | { from: 'docker' };

/**
 * The server given from elsewhere, if there is one. A stack's own URLs may stand in the environment too (a test run
 * puts them there for its workers); they carry its password and give nothing.
 */
export const givenUrl = (service: Service, ownPassword: string | undefined): string | undefined => {
  const url = process.env[service.variable];
  if (url === undefined || url === '') return undefined;
  return ownPassword !== undefined && url.includes(ownPassword) ? undefined : url;
};

/**
 * Finds each service, first on this machine, then by installing what is missing, then in Docker.
 * Throws one error that names everything that is missing, with the command for each.
 */
export const findSources = async (
  services: Service[],
  log: (line: string) => void,
): Promise<Map<ServiceName, Source>> => {
  const sources = new Map<ServiceName, Source>();
  let missing = await lookOnMachine(services, sources);
  if (missing.length > 0) {
    const notes = await bring(missing, log);
    missing = await lookOnMachine(
      missing.map(({ service }) => service),
      sources,
    );
    if (missing.length > 0 && (await dockerAnswers())) {
      for (const { service } of missing) sources.set(service.name, { from: 'docker' });
    } else if (missing.length > 0) throw new Error(tell(missing, notes));
  }
  return sources;
};

type Gap = { service: Service; found: Missing };

const lookOnMachine = async (services: Service[], sources: Map<ServiceName, Source>): Promise<Gap[]> => {
  const missing: Gap[] = [];
  for (const service of services) {
    const found = await service.find();
    if (isMissing(found)) missing.push({ service, found });
    else sources.set(service.name, { from: 'machine', programs: found });
  }
  return missing;
};

/** Installs what it can. What failed is returned as notes: Docker may still have it. */
const bring = async (missing: Gap[], log: (line: string) => void): Promise<string[]> => {
  const notes: string[] = [];
  const attempt = async (work: () => Promise<unknown>): Promise<void> => {
    await work().catch((error: unknown) =>
      notes.push(error instanceof Error ? error.message : String(error)),
    );
  };
  const packages = missing.flatMap(({ found }) => found.packages);
  await attempt(() => installPackages(packages, log));
  for (const { service } of missing) await attempt(async () => service.provide?.(log));
  return notes;
};

const installCommand = (packages: string[]): string =>
  `sudo apt-get install -y --no-install-recommends ${packages.join(' ')}`;

const tell = (missing: Gap[], notes: string[]): string =>
  [
    'the stack cannot start; this machine lacks:',
    ...missing.flatMap(({ service, found }) => [
      `  ${service.name}: ${found.what}`,
      ...(found.packages.length === 0 ? [] : [`    ${installCommand(found.packages)}`]),
      ...(found.otherwise === undefined ? [] : [`    ${found.otherwise}`]),
      `    or give a running server: ${service.variable}=…`,
    ]),
    '  or start a Docker engine with the compose plugin, which can run all of them.',
    ...notes,
  ].join('\n');
