import { execFile } from 'node:child_process';
import { appendFileSync, copyFileSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { folderOf, logFile, makeFolder, passwords, writeState, type Folder } from '../../stack/folder.js';
import { rabbitmq } from '../../stack/rabbitmq.js';
import type { Place, Ports, Programs, Service } from '../../stack/service.js';
import { findSources } from '../../stack/sources.js';
import { machineUnit, placeOf } from '../../stack/unit.js';

/** One private RabbitMQ node, made of the stack's parts: what is set there holds here too. */
export interface BrokerNode {
  /** Erlang's name of it, as the broker's own tools print it. */
  readonly name: string;
  readonly url: string;
  /** Process ids; none when it does not run. */
  pids(): Promise<number[]>;
  /** Starts it, with the data it has; resolves when it has done a real operation. */
  start(): Promise<void>;
  /** SIGTERM, and waits for its end. */
  stop(): Promise<void>;
  /** SIGKILL, and waits for its end. @throws when it did not run: a fault that was not made proves nothing */
  kill(): Promise<void>;
  /** Runs one of the broker's own tools against it (about two seconds: each starts an Erlang of its own). */
  tool(program: 'rabbitmqctl' | 'rabbitmq-queues', args: readonly string[]): Promise<string>;
  /** What it has printed so far. */
  log(): string;
  /** Ends it and deletes its data. */
  remove(): Promise<void>;
}

export interface NodeOptions {
  readonly root: string;
  /** Names its folder below `root`; what a run before left there is removed. */
  readonly name: string;
  readonly ports: Ports;
  readonly programs: Programs;
  /** Lines for its rabbitmq.conf, beside the stack's own. */
  readonly settings?: readonly string[];
  /** A node whose password and cookie it shares. */
  readonly like?: string;
  /** `alone`: it brings its own port mapper; `mapped`: one runs already at that port; `mapper`: it is one. */
  readonly part?: 'alone' | 'mapped' | 'mapper';
}

/** @throws when this machine has no RabbitMQ and it cannot be installed, with the fix */
export async function brokerPrograms(): Promise<Programs> {
  const source = (await findSources([rabbitmq], () => undefined)).get('rabbitmq');
  if (source?.from === 'machine') return source.programs;
  throw new Error(
    'this test kills RabbitMQ nodes of this machine; RabbitMQ in Docker will not do. Run: apt-get install rabbitmq-server',
  );
}

/** A node that does not run yet, its folder empty and fresh. */
export async function brokerNode(options: NodeOptions): Promise<BrokerNode> {
  const { root, name, ports, programs, part = 'alone' } = options;
  const folder = folderOf(root, name);
  const unit = machineUnit(folder, serviceOf(part, options.settings ?? []), () => undefined, programs);
  const remove = async (): Promise<void> => {
    await unit.remove();
    rmSync(folder.path, { recursive: true, force: true });
  };
  await remove();
  makeFolder(folder);
  if (options.like !== undefined)
    copyFileSync(join(root, options.like, 'passwords.json'), join(folder.path, 'passwords.json'));
  passwords(folder);
  writeState(folder, { ports: { rabbitmq: ports }, sources: { rabbitmq: 'machine' } });
  const pids = async (): Promise<number[]> => (await unit.look()).pids;
  return {
    name: nodeName(folder),
    url: rabbitmq.urls(placeOfBroker(folder)).RABBITMQ_URL ?? '',
    pids,
    start: () => unit.start(),
    stop: () => unit.stop(),
    kill: async () => {
      if ((await pids()).length === 0) throw new Error(`${name} does not run: there is nothing to kill`);
      await unit.kill();
    },
    tool: (program, args) => brokerTool(folder, program, args),
    log: () => readFileSync(logFile(folder, 'rabbitmq'), 'utf8'),
    remove,
  };
}

/** The stack's service, with more settings, and with or without the port mapper (epmd) as a process of its own. */
function serviceOf(part: 'alone' | 'mapped' | 'mapper', settings: readonly string[]): Service {
  const commands: Service['commands'] = async (place, programs) => {
    const [mapper, server] = await rabbitmq.commands(place, programs);
    const wanted = part === 'mapper' ? [mapper] : part === 'mapped' ? [server] : [mapper, server];
    return wanted.filter((one) => one !== undefined);
  };
  return {
    ...rabbitmq,
    commands,
    prepare: async (place, programs) => {
      await rabbitmq.prepare(place, programs);
      appendFileSync(join(place.folder, 'rabbitmq.conf'), settings.map((line) => `${line}\n`).join(''));
    },
    ready: part === 'mapper' ? async () => undefined : (urls) => rabbitmq.ready(urls),
  };
}

const placeOfBroker = (folder: Folder): Place => placeOf(folder, rabbitmq, () => undefined);

/** Erlang's name of the RabbitMQ node that lives in this folder. */
export const nodeName = ({ id }: Pick<Folder, 'id'>): string => `twinbox-${id}@localhost`;

/** Runs one of the broker's own tools against the node in this folder: a stack's, or one from here. */
export async function brokerTool(
  folder: Folder,
  program: 'rabbitmqctl' | 'rabbitmq-queues',
  args: readonly string[],
): Promise<string> {
  const { folder: home, ports } = placeOfBroker(folder);
  const { stdout } = await promisify(execFile)(
    join('/usr/lib/rabbitmq/bin', program),
    ['-q', '-n', nodeName(folder), ...args],
    {
      env: {
        PATH: process.env.PATH,
        HOME: join(home, 'home'),
        ERL_EPMD_ADDRESS: '127.0.0.1',
        ERL_EPMD_PORT: String(ports['epmd']),
      },
    },
  );
  return stdout.trim();
}
