import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { connect } from 'amqplib';
import { findProgram } from './programs.js';
import type { Place, Service } from './service.js';

const SCRIPTS = ['/usr/lib/rabbitmq/bin'];

/** A node that shares nothing with another on this machine: own name, cookie, epmd and home. */
const environment = ({ folder, id, ports }: Place): Record<string, string> => ({
  HOME: join(folder, 'home'),
  ERL_EPMD_ADDRESS: '127.0.0.1',
  ERL_EPMD_PORT: String(ports['epmd']),
  RABBITMQ_NODENAME: `twinbox-${id}@localhost`,
  RABBITMQ_DIST_PORT: String(ports['distribution']),
  RABBITMQ_MNESIA_BASE: join(folder, 'data'),
  RABBITMQ_LOG_BASE: join(folder, 'log'),
  RABBITMQ_CONFIG_FILE: join(folder, 'rabbitmq.conf'),
  RABBITMQ_ENABLED_PLUGINS_FILE: join(folder, 'enabled_plugins'),
  RABBITMQ_CONF_ENV_FILE: '/dev/null',
  // Makes the script become the server instead of waiting for it as a shell.
  RUNNING_UNDER_SYSTEMD: 'true',
  RABBITMQ_PID_FILE: join(folder, 'server.pid'),
  RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: '-kernel inet_dist_use_interface {127,0,0,1}',
});

const configuration = ({ ports, password }: Place): string =>
  [
    `listeners.tcp.1 = 127.0.0.1:${ports['amqp'] ?? 0}`,
    `management.tcp.ip = 127.0.0.1`,
    `management.tcp.port = ${ports['management'] ?? 0}`,
    `prometheus.tcp.ip = 127.0.0.1`,
    `prometheus.tcp.port = ${ports['prometheus'] ?? 0}`,
    // Used when the node's store is first made; a default user of our own means that no guest is made.
    `default_user = twinbox`,
    `default_pass = ${password}`,
    `log.console = true`,
    `log.console.level = info`,
    `log.file = false`,
    '',
  ].join('\n');

export const rabbitmq: Service = {
  name: 'rabbitmq',
  variable: 'RABBITMQ_URL',
  portNames: ['amqp', 'distribution', 'epmd', 'management', 'prometheus'],
  stopSignal: 'SIGTERM',

  async find() {
    // Not the wrapper in /usr/sbin: it changes to the user rabbitmq and to the packaged server's own folders.
    const server = findProgram('rabbitmq-server', SCRIPTS);
    const epmd = findProgram('epmd');
    if (server === undefined || epmd === undefined || findProgram('erl') === undefined) {
      return { what: 'rabbitmq-server (with Erlang)', packages: ['rabbitmq-server'] };
    }
    return { server, epmd };
  },

  async prepare(place) {
    const { folder, password } = place;
    for (const name of ['home', 'data', 'log'])
      mkdirSync(join(folder, name), { recursive: true, mode: 0o700 });
    const cookie = join(folder, 'home', '.erlang.cookie');
    if (!existsSync(cookie)) writeFileSync(cookie, `cookie${password}`, { mode: 0o400 });
    writeFileSync(join(folder, 'rabbitmq.conf'), configuration(place), { mode: 0o600 });
    writeFileSync(join(folder, 'enabled_plugins'), '[rabbitmq_management,rabbitmq_prometheus].\n', {
      mode: 0o600,
    });
    rmSync(join(folder, 'server.pid'), { force: true });
  },

  async commands(place, programs) {
    const { folder, ports } = place;
    const env = environment(place);
    // Started here, the port mapper stays a child that stops with the stack; started by the node it would become a
    // daemon and outlive it. It listens on [::1] as well, whatever the address says: loopback, but not IPv4 alone.
    const epmd = {
      program: programs['epmd'] ?? '',
      args: ['-address', '127.0.0.1', '-port', String(ports['epmd'])],
      cwd: folder,
      env,
    };
    return [epmd, { program: programs['server'] ?? '', args: [], cwd: folder, env }];
  },

  async ready({ RABBITMQ_URL: url = '', RABBITMQ_MANAGEMENT_URL: management }) {
    const connection = await connect(url, { timeout: 3_000 });
    connection.on('error', () => undefined);
    const work = async (): Promise<void> => {
      const channel = await connection.createChannel();
      channel.on('error', () => undefined);
      const { queue } = await channel.assertQueue('', { exclusive: true });
      await channel.deleteQueue(queue);
      await connection.close();
    };
    // No call of this library has a limit of its own: on a link that went silent each would wait for ever.
    const limit = new AbortController();
    const late = wait(5_000, undefined, { signal: limit.signal, ref: false }).then(() => {
      throw new Error('RabbitMQ accepted the connection, then did not answer for 5 s');
    });
    late.catch(() => undefined);
    try {
      await Promise.race([work(), late]);
    } finally {
      limit.abort();
      (connection.connection as unknown as { stream: Socket }).stream.destroy();
    }
    if (management !== undefined) await managementAnswers(management);
  },

  urls: ({ ports, password }) => ({
    RABBITMQ_URL: `amqp://twinbox:${password}@127.0.0.1:${ports['amqp'] ?? 0}`,
    RABBITMQ_MANAGEMENT_URL: `http://twinbox:${password}@127.0.0.1:${ports['management'] ?? 0}`,
  }),
};

const managementAnswers = async (address: string): Promise<void> => {
  const url = new URL('/api/overview', address);
  const login = Buffer.from(`${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`);
  url.username = url.password = '';
  const answer = await fetch(url, {
    headers: { authorization: `Basic ${login.toString('base64')}` },
    signal: AbortSignal.timeout(3_000),
  });
  await answer.arrayBuffer();
  if (!answer.ok) throw new Error(`the management API answers ${answer.status}`);
};
