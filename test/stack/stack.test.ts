import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openStack, SERVICE_NAMES } from '../../stack/index.js';
import type { ServiceName, StackUrls } from '../../stack/index.js';
import { until } from '../support/until.js';
import { CLIENTS } from './clients.js';

const ROOT = join(import.meta.dirname, '..', '..', '.stack');
const VARIABLES = ['DATABASE_URL', 'RABBITMQ_URL', 'RABBITMQ_MANAGEMENT_URL', 'REDIS_URL', 'MONGODB_URI'];

const stack = openStack({ root: ROOT, name: 'selftest' });
let urls: StackUrls;

const forAll = (work: (name: ServiceName) => Promise<unknown>): Promise<unknown> =>
  Promise.all(SERVICE_NAMES.map(work));

const expectValues = (value: string): Promise<unknown> =>
  forAll(async (name) => expect(await CLIENTS[name].read(urls), name).toBe(value));

/** A zombie is dead: only its parent has not looked yet. */
const isLiving = (pid: number): boolean => {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
};

/** Command lines of living processes that speak of a folder or one of the ports. */
const processesAbout = (words: string[]): string[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => {
      try {
        return `${pid} ${readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')}`;
      } catch {
        return '';
      }
    })
    .filter((line) => words.some((word) => line.includes(word)));

const portsOf = (name: string): number[] => {
  const state = JSON.parse(readFileSync(join(ROOT, name, 'state.json'), 'utf8')) as {
    ports: Record<string, Record<string, number>>;
  };
  return Object.values(state.ports).flatMap((ports) => Object.values(ports));
};

const isOpen = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect({ port, host: '127.0.0.1' });
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
    socket.once('connect', () => socket.destroy());
  });

const openPorts = async (ports: number[]): Promise<number[]> => {
  const open = await Promise.all(ports.map(isOpen));
  return ports.filter((_, index) => open[index]);
};

beforeAll(async () => {
  // Servers of somebody else must not be taken for given here.
  for (const name of VARIABLES) Reflect.deleteProperty(process.env, name);
  await stack.remove();
  await openStack({ root: ROOT, name: 'selftest-attached' }).remove();
  urls = await stack.start();
});

afterAll(async () => {
  await stack.remove();
  expect(existsSync(join(ROOT, 'selftest'))).toBe(false);
});

test('from nothing: every URL works, on loopback, and only its owner can read the passwords', async () => {
  await forAll((name) => CLIENTS[name].write(urls, 'first'));
  await expectValues('first');
  for (const url of Object.values(urls)) expect(new URL(url).hostname).toBe('127.0.0.1');
  expect(statSync(join(ROOT, 'selftest', 'passwords.json')).mode & 0o777).toBe(0o600);
  await expect(CLIENTS.postgres.read(withPassword('DATABASE_URL', 'wrong'))).rejects.toThrow(/password/);
  await expect(CLIENTS.redis.read(withPassword('REDIS_URL', 'wrong'))).rejects.toThrow();
  await expect(CLIENTS.rabbitmq.read(withPassword('RABBITMQ_URL', 'wrong'))).rejects.toThrow(
    /ACCESS.REFUSED/i,
  );
});

const withPassword = (
  variable: 'DATABASE_URL' | 'REDIS_URL' | 'RABBITMQ_URL',
  password: string,
): StackUrls => {
  const url = new URL(urls[variable]);
  url.password = password;
  return { ...urls, [variable]: url.href };
};

test('a second start leaves running services alone', async () => {
  const before = await stack.status();
  expect(await stack.start()).toEqual(urls);
  expect((await stack.status()).map(({ pids }) => pids[0])).toEqual(before.map(({ pids }) => pids[0]));
});

test.each(SERVICE_NAMES)(
  '%s: killed with SIGKILL and started again, it has what was written',
  async (name) => {
    await CLIENTS[name].write(urls, `before the kill of ${name}`);
    const before = (await stack.status()).find(({ service }) => service === name)!.pids;
    expect(before).not.toEqual([]);

    await stack.kill(name);
    expect(before.filter(isLiving)).toEqual([]);
    await expect(CLIENTS[name].read(urls)).rejects.toThrow();
    await expect(stack.kill(name)).rejects.toThrow(/does not run/);

    await stack.startService(name);
    expect(stack.urls()).toEqual(urls);
    expect(await CLIENTS[name].read(urls)).toBe(`before the kill of ${name}`);
  },
);

test('paused, no service answers; resumed, each answers what it was asked meanwhile', async () => {
  await forAll((name) => CLIENTS[name].write(urls, 'paused'));
  await forAll((name) => stack.pause(name));
  expect((await stack.status()).map(({ state }) => state)).toEqual(SERVICE_NAMES.map(() => 'paused'));

  const answered: ServiceName[] = [];
  const asked = forAll(async (name) => {
    // Connecting may succeed (the kernel accepts); an answer needs the server. Some clients give up; that is none.
    await CLIENTS[name].read(urls).then(
      () => answered.push(name),
      () => undefined,
    );
  });
  const pausedFor = Date.now() + 1_500;
  await until('1.5 s have passed', () => Date.now() > pausedFor);
  expect(answered).toEqual([]);

  await forAll((name) => stack.resume(name));
  await asked;
  await expectValues('paused');
});

test('stop leaves no process; start finds the data and the same ports', async () => {
  await forAll((name) => CLIENTS[name].write(urls, 'kept'));
  const ports = portsOf('selftest');
  expect(await openPorts(ports)).toEqual(ports);
  await stack.stop();
  expect(processesAbout([join(ROOT, 'selftest/'), ...ports.map((port) => `-port ${port} `)])).toEqual([]);
  expect(await openPorts(ports)).toEqual([]);

  const startedAt = Date.now();
  expect(await stack.start()).toEqual(urls);
  expect(Date.now() - startedAt).toBeLessThan(15_000);
  await expectValues('kept');
});

test('an attached stack ends with a killed parent; a server that was given goes on', async () => {
  const name = 'selftest-attached';
  await CLIENTS.redis.write(urls, 'given');
  const args = ['--import', 'tsx', join(import.meta.dirname, 'attached.ts'), ROOT, name];
  const parent = spawn(process.execPath, args, {
    env: { ...process.env, REDIS_URL: urls.REDIS_URL },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [line] = (await once(parent.stdout, 'data')) as [Buffer];
  const theirs = JSON.parse(line.toString()) as StackUrls;
  expect(theirs.REDIS_URL).toBe(urls.REDIS_URL);
  expect(theirs.DATABASE_URL).not.toBe(urls.DATABASE_URL);
  await CLIENTS.postgres.write(theirs, 'theirs');

  // What another process starts anew belongs to the stack's owner all the same.
  const attached = openStack({ root: ROOT, name });
  await attached.kill('mongodb');
  await attached.startService('mongodb');

  const words = [name, ...portsOf(name).map((port) => `-port ${port} `)];
  const running = processesAbout(words);
  for (const part of ['epmd -address', 'guardian-main', 'beam', 'postgres -D']) {
    expect(
      running.filter((line) => line.includes(part)),
      part,
    ).toHaveLength(1);
  }

  parent.kill('SIGKILL');
  await once(parent, 'exit');
  await until('no process of the attached stack is left', () => processesAbout(words).length === 0, {
    ms: 30_000,
  });
  expect(await openPorts(portsOf(name))).toEqual([]);
  expect(await CLIENTS.redis.read(urls)).toBe('given');

  expect((await attached.status()).map(({ state }) => state)).not.toContain('running');
  await attached.remove();
});

test('what was given is used as it is, and never disturbed', async () => {
  const root = mkdtempSync(join(ROOT, 'given-'));
  const given = openStack({ root, name: 'given' });
  await forAll((name) => CLIENTS[name].write(urls, 'given'));
  Object.assign(process.env, urls);
  try {
    expect(await given.start()).toEqual(urls);
    for (const act of ['kill', 'pause', 'resume', 'restart', 'startService'] as const) {
      await expect(given[act]('redis')).rejects.toThrow(/given by REDIS_URL.*Unset REDIS_URL/s);
    }
    expect((await given.status()).map(({ state }) => state)).toEqual(SERVICE_NAMES.map(() => 'given'));
    await given.stop();
    await given.remove();
    await expectValues('given');
    // The same variables do not make a stack's own servers foreign to it.
    expect((await stack.status()).map(({ state }) => state)).toEqual(SERVICE_NAMES.map(() => 'running'));
    process.env['REDIS_URL'] = 'redis://127.0.0.1:9/0';
    await expect(given.start()).rejects.toThrow(/redis: the server given by REDIS_URL does not answer/);
  } finally {
    for (const name of VARIABLES) Reflect.deleteProperty(process.env, name);
    rmSync(root, { recursive: true, force: true });
  }
});
