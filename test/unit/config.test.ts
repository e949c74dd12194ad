import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { readConfig, readOwnSettings } from '../../src/runtime/config.js';
import { ConfigurationError } from '../../src/runtime/errors.js';

const GOOD = {
  DATABASE_URL: 'postgres://u:p@127.0.0.1/app',
  RABBITMQ_URL: 'amqp://u:p@127.0.0.1/v',
};
const read = (env: Record<string, string>): ReturnType<typeof readConfig<'DATABASE_URL' | 'RABBITMQ_URL'>> =>
  readConfig(env, ['DATABASE_URL', 'RABBITMQ_URL'], { process: 'relay' });

function faultOf(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigurationError);
    return (error as Error).message;
  }
  throw new Error('nothing was refused');
}

test('defaults stand where nothing is set, an empty value is none', () => {
  expect(read({ ...GOOD, RELAY_WINDOW: '' })).toMatchObject({
    HOST: '127.0.0.1',
    PORT: 0,
    RELAY_WINDOW: 200,
    SHUTDOWN_TIMEOUT_MS: 25_000,
    LOG_LEVEL: 'info',
  });
});

test('what the process does not need is neither asked for nor handed out', () => {
  const config = read({ ...GOOD, REDIS_URL: 'not an address' });
  expect(config).not.toHaveProperty('REDIS_URL');
});

test('every fault stands in one message, none with its value', () => {
  const message = faultOf(() =>
    read({
      DATABASE_URL: 'mysql://root:hunter2@db/x',
      RELAY_WINDOW: '10.5',
      LOG_LEVEL: 'loud',
      RELAY_WINDOWS: '17',
    }),
  );
  expect(message).toMatch(/^5 faults in the configuration:/);
  expect(message).toContain('DATABASE_URL must be an address like postgres://');
  expect(message).toContain('RABBITMQ_URL is missing (needed by: relay)');
  expect(message).toContain('RELAY_WINDOW must be a whole number from 1 to 2000 (rows)');
  expect(message).toContain('LOG_LEVEL must be one of trace');
  expect(message).toContain('RELAY_WINDOWS is not a setting; did you mean RELAY_WINDOW?');
  for (const value of ['hunter2', 'mysql', '10.5', 'loud', '17']) expect(message).not.toContain(value);
});

test.each(['-1', '1e3', '0x10', ' 5', '5 ', 'NaN', 'Infinity', '2001', '99999999999999999999'])(
  'RELAY_WINDOW=%j is refused',
  (value) => {
    expect(faultOf(() => read({ ...GOOD, RELAY_WINDOW: value }))).toContain('RELAY_WINDOW must be');
  },
);

test.each([
  ['RELAY_WINDW', 'RELAY_WINDOW'],
  ['DATABSE_URL', 'DATABASE_URL'],
  ['MONGODB_URL', 'MONGODB_URI'],
  ['TWINBOX_PROCESORS', 'TWINBOX_PROCESSORS'],
  ['TWINBOX_WHATEVER', 'TWINBOX_PROCESS'],
])('%s is told from %s', (wrong, right) => {
  expect(faultOf(() => read({ ...GOOD, [wrong]: 'x' }))).toContain(
    `${wrong} is not a setting; did you mean ${right}?`,
  );
});

test.each(['HOME', 'HOSTNAME', 'PATH', 'NODE_ENV', 'REDIS_TLS_URL', 'PGDATABASE', 'RABBITMQ_NODENAME'])(
  '%s belongs to others and is left alone',
  (name) => {
    expect(() => read({ ...GOOD, [name]: 'x' })).not.toThrow();
  },
);

test('names that platforms give count, after our own', () => {
  const { RABBITMQ_URL: _, ...rest } = GOOD;
  expect(read({ ...rest, CLOUDAMQP_URL: 'amqps://a/b' }).RABBITMQ_URL).toBe('amqps://a/b');
  expect(read({ ...GOOD, CLOUDAMQP_URL: 'amqps://a/b' }).RABBITMQ_URL).toBe(GOOD.RABBITMQ_URL);
});

test('a secret comes from a file, without its line end; both at once, or no file, is a fault', () => {
  const folder = mkdtempSync(join(tmpdir(), 'twinbox-config-'));
  try {
    const file = join(folder, 'url');
    writeFileSync(file, `${GOOD.DATABASE_URL}\n`);
    const { DATABASE_URL: _, ...rest } = GOOD;
    expect(read({ ...rest, DATABASE_URL_FILE: file }).DATABASE_URL).toBe(GOOD.DATABASE_URL);
    expect(faultOf(() => read({ ...GOOD, DATABASE_URL_FILE: file }))).toContain(
      'DATABASE_URL and DATABASE_URL_FILE are both set: keep one',
    );
    expect(faultOf(() => read({ ...rest, DATABASE_URL_FILE: join(folder, 'none') }))).toContain(
      'DATABASE_URL_FILE names a file that cannot be read (ENOENT)',
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('an actor reads its own settings with the same manners', () => {
  const schema = z.object({ SMTP_URL: z.url(), SMTP_FROM: z.email() });
  expect(readOwnSettings({ SMTP_URL: 'smtp://h', SMTP_FROM: 'a@example.org' }, schema, 'notify')).toEqual({
    SMTP_URL: 'smtp://h',
    SMTP_FROM: 'a@example.org',
  });
  const message = faultOf(() => readOwnSettings({ SMTP_FROM: 'nobody' }, schema, 'notify'));
  expect(message).toContain('SMTP_URL is missing (needed by: notify)');
  expect(message).toContain('SMTP_FROM has a value that cannot be used (needed by: notify)');
  expect(message).not.toContain('nobody');
});
