import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { migrateOutbox } from '../../src/outbox/index.js';
import { killAll, startProcess, startType, type Running } from '../support/processes.js';
import { startProxy, type Proxy } from '../support/proxy.js';
import { freshStores, type Stores } from '../support/stores.js';
import { until } from '../support/until.js';

let stores: Stores;
let folder: string;
const closes: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  stores = await freshStores();
  await migrateOutbox(stores.env.DATABASE_URL);
  folder = mkdtempSync(join(tmpdir(), 'twinbox-process-'));
});
afterAll(async () => {
  rmSync(folder, { recursive: true });
  await stores.drop();
});
afterEach(async () => {
  await killAll();
  for (const close of closes.splice(0)) await close();
});

async function freePort(): Promise<string> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return String(port);
}

async function ask(port: string, path: string): Promise<string> {
  const response = await fetch(`http://127.0.0.1:${port}${path}`);
  return `${response.status} ${(await response.text()).trim()}`;
}

async function proxyFor(
  name: 'DATABASE_URL' | 'RABBITMQ_URL',
): Promise<{ proxy: Proxy; env: NodeJS.ProcessEnv }> {
  const url = new URL(stores.env[name]);
  const proxy = await startProxy({ host: url.hostname, port: Number(url.port) });
  closes.push(() => proxy.close());
  url.hostname = '127.0.0.1';
  url.port = String(proxy.port);
  return { proxy, env: { [name]: url.href } };
}

/** A server that accepts and says nothing: a store behind a firewall that swallows. */
async function silentServer(): Promise<{ port: number; accepted: () => number }> {
  const sockets = new Set<Socket>();
  let accepted = 0;
  const server: Server = createServer((socket) => {
    accepted += 1;
    sockets.add(socket.on('error', () => undefined));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  closes.push(async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
  return { port: (server.address() as AddressInfo).port, accepted: () => accepted };
}

const relay = (over: NodeJS.ProcessEnv = {}): Running =>
  startType('relay', [], { ...stores.env, RELAY_POLL_MS: '50', ...over });

test('every fault of the configuration at once: exit 78, a typo named, no value shown, no stack', async () => {
  const { DATABASE_URL: _, ...rest } = stores.env;
  const process_ = startType('relay', [], {
    ...rest,
    RABBITMQ_URL: 'http://user:hunter2@host/',
    RELAY_WINDOW: 'plenty',
    RELAY_WINDW: '5',
  });
  expect(await process_.ended).toBe(78);
  const text = process_.text.join('\n');
  expect(text).toContain('relay cannot start: 4 faults in the configuration');
  expect(text).toContain('DATABASE_URL is missing');
  expect(text).toContain('RABBITMQ_URL must be');
  expect(text).toContain('RELAY_WINDOW must be');
  expect(text).toContain('RELAY_WINDW is not a setting; did you mean RELAY_WINDOW?');
  expect(text).not.toMatch(/hunter2|plenty|\n\s+at /);
  expect(process_.lines).toEqual([]);
});

test('a secret in a file is as good as one in the environment', async () => {
  const file = join(folder, 'database-url');
  writeFileSync(file, `${stores.env.DATABASE_URL}\n`);
  const process_ = relay({ DATABASE_URL: '', DATABASE_URL_FILE: file });
  await process_.line('relay.slots');
  expect(await process_.stop()).toBe(0);
});

test('a database without the table: exit 78 with the command that mends it', async () => {
  const empty = await freshStores();
  closes.push(() => empty.drop());
  const process_ = relay({ DATABASE_URL: empty.env.DATABASE_URL });
  expect(await process_.ended).toBe(78);
  expect(process_.lines.at(-2)?.msg ?? '').toMatch(/twinbox migrate/);
});

test('a health port that is taken: exit 1, and the log says which', async () => {
  const { port } = await silentServer();
  const process_ = relay({ PORT: String(port) });
  expect(await process_.ended).toBe(1);
  expect(process_.lines.at(-1)).toMatchObject({ event: 'process.failed', level: 'fatal' });
  expect(process_.lines.at(-1)?.msg).toContain('EADDRINUSE');
});

test('readyz follows what is really attached; healthz stays 200 whatever the stores do', async () => {
  const [PORT, broker, database] = [
    await freePort(),
    await proxyFor('RABBITMQ_URL'),
    await proxyFor('DATABASE_URL'),
  ];
  broker.proxy.cut();
  const process_ = relay({ PORT, ...broker.env, ...database.env });
  await process_.line('process.started');
  await until('not ready for the broker', async () => /^503 .*broker/.test(await ask(PORT, '/readyz')));
  expect(await ask(PORT, '/healthz')).toBe('200 ok');

  broker.proxy.heal();
  await until('ready', async () => (await ask(PORT, '/readyz')) === '200 ok');
  database.proxy.cut();
  await until('not ready for Postgres', async () => /^503 Postgres/.test(await ask(PORT, '/readyz')));
  expect(await ask(PORT, '/healthz')).toBe('200 ok');
  database.proxy.heal();
  await until('ready again', async () => (await ask(PORT, '/readyz')) === '200 ok');

  // A stop that takes a moment (a broker that does not answer its close) shows in readyz before the exit.
  broker.proxy.freeze('both');
  process_.kill('SIGTERM');
  await until('stopping', async () => (await ask(PORT, '/readyz')) === '503 stopping');
  expect(await process_.ended).toBe(0);
});

test('a second SIGTERM and a SIGINT shorten nothing and break nothing', async () => {
  const { proxy, env } = await proxyFor('RABBITMQ_URL');
  const process_ = relay(env);
  await process_.line('relay.slots');
  await process_.line('broker.connected');
  proxy.freeze('both'); // the stop now takes seconds
  process_.kill('SIGTERM');
  await process_.line('process.stopping');
  process_.kill('SIGTERM');
  process_.kill('SIGINT');
  expect(await process_.ended).toBe(0);
  const events = process_.lines.map(({ event }) => event);
  expect(events.filter((event) => event === 'process.stopping')).toHaveLength(1);
  expect(events.at(-1)).toBe('process.stopped');
});

test.each(['DATABASE_URL', 'RABBITMQ_URL'] as const)(
  'SIGTERM during the start, while %s leads to a server that says nothing, ends in time',
  async (name) => {
    const silent = await silentServer();
    const url = new URL(stores.env[name]);
    url.hostname = '127.0.0.1';
    url.port = String(silent.port);
    const process_ = relay({ [name]: url.href, SHUTDOWN_TIMEOUT_MS: '12000' });
    await until('it waits for the store', () => silent.accepted() > 0);
    const began = Date.now();
    expect(await process_.stop()).toBe(0);
    expect(Date.now() - began).toBeLessThan(12_000);
  },
);

test('a stop that takes longer than SHUTDOWN_TIMEOUT_MS: exit 1, and the log says so', async () => {
  const { proxy, env } = await proxyFor('RABBITMQ_URL');
  const process_ = relay({ ...env, SHUTDOWN_TIMEOUT_MS: '300' });
  await process_.line('relay.slots');
  await process_.line('broker.connected');
  proxy.freeze('both');
  const began = Date.now();
  expect(await process_.stop()).toBe(1);
  expect(Date.now() - began).toBeLessThan(2_000);
  expect(process_.lines.at(-1)).toMatchObject({ event: 'process.stop.late', timeoutMs: 300 });
});

/** A process type of the test's own, run by the real runtime. */
function own(start: string, env: NodeJS.ProcessEnv = {}): Running {
  const file = join(folder, `own-${Math.random().toString(36).slice(2)}.mjs`);
  const runtime = join(import.meta.dirname, '..', '..', 'dist', 'runtime');
  writeFileSync(
    file,
    `import { runProcess } from ${JSON.stringify(join(runtime, 'process.js'))};
     const service = { ready: () => undefined, stop: async () => undefined };
     await runProcess({ name: 'own', needs: [], start: async (context) => { ${start} } });`,
  );
  return startProcess(process.execPath, [file], { PATH: process.env.PATH, ...env });
}

test('an error that nobody caught, or a rejection, stops what can be stopped: exit 1, with its stack in the log', async () => {
  for (const fault of [
    'setTimeout(() => { throw new Error("amqp://user:hunter2@host was lost"); }, 1)',
    'setTimeout(() => void Promise.reject(new Error("amqp://user:hunter2@host was lost")), 1)',
  ]) {
    const process_ = own(`${fault}; return { ...service, stop: async () => console.log('settled') };`);
    expect(await process_.ended).toBe(1);
    expect(process_.text).toEqual(['settled']);
    const told = process_.lines.find(({ event }) => event === 'process.stopping');
    expect(told).toMatchObject({ level: 'fatal', err: { stack: expect.stringContaining('own-') as string } });
    expect(JSON.stringify(process_.lines)).not.toContain('hunter2');
  }
});

test('a start that fails: exit 1; a stop that fails: exit 1', async () => {
  const start = own('throw new Error("no way");');
  expect(await start.ended).toBe(1);
  expect(start.lines.at(-1)).toMatchObject({
    event: 'process.failed',
    msg: 'own could not start: Error: no way',
  });

  const stop = own('return { ...service, stop: async () => { throw new Error("stuck"); } };');
  await stop.line('process.started');
  // Nothing of its own keeps this process alive: the runtime does, until it is told to stop.
  expect(await stop.stop()).toBe(1);
  expect(stop.lines.at(-1)).toMatchObject({ event: 'process.stop.failed' });
});
