import { afterAll, beforeAll, expect, test } from 'vitest';
import { openLetters, type Letters } from '../support/letters.js';
import { freshStores, type Stores } from '../support/stores.js';
import { twinbox, type Printed } from '../support/twinbox.js';

let stores: Stores;
let letters: Letters;
let env: NodeJS.ProcessEnv;
const run = (...args: string[]): Promise<Printed> => twinbox(env, 'dlq', ...args);

beforeAll(async () => {
  stores = await freshStores();
  env = stores.env;
  letters = await openLetters(stores.env.RABBITMQ_URL);
});
afterAll(async () => {
  await letters.close();
  await stores.drop();
});

test.each([
  [[], 'what about the dead letters?'],
  [['lost', 'a'], 'there is no command dlq'],
  [['list'], 'of which actor?'],
  [['list', 'A.b'], 'is no name of an actor'],
  [['list', 'a', 'm-1'], 'by --id and others'],
  [['list', 'a', '--reason', 'conflict'], "'--reason'"],
  [['list', 'a', '--from', '2026-02-30T12:00:00Z'], 'there is no such time'],
  [['list', 'a', '--from', '1h', '--to', '2h'], 'before it begins'],
  [['list', 'a', '--letter', 'x'], '12 hex digits'],
  [['show', 'a'], 'one message id, or --letter'],
  [['replay', 'a'], 'replay which letters?'],
  [['replay', 'a', '--reason', 'conflict', '--yes'], 'replay which letters?'],
  [['replay', 'a', '--all', '--type', 'x'], '--all means every letter'],
  [['purge', 'a', '--all', '--yes'], 'needs --reason'],
  [['purge', 'a', '--all', '--rate', '5'], 'takes no --rate'],
])('%j is a usage error that says why', async (args, why) => {
  const { code, stderr, stdout } = await run(...args);
  expect(code).toBe(2);
  expect(stderr).toContain(why);
  expect(stdout).toBe('');
});

test('a queue, a broker or a setting that is missing is told with the fix', async () => {
  const missing = await run('list', 'nobody');
  expect(missing.code).toBe(1);
  expect(missing.stderr).toContain("there is no queue 'twinbox.nobody.dlq'");
  const away = await twinbox(
    { ...env, RABBITMQ_URL: 'amqp://user:secret-word@127.0.0.1:1/v' },
    'dlq',
    'list',
    'a',
  );
  expect(away.code).toBe(1);
  expect(away.stderr).toContain('ECONNREFUSED');
  expect(away.stderr).not.toContain('secret-word');
  const unset = await twinbox({ ...env, RABBITMQ_URL: '' }, 'dlq', 'list', 'a');
  expect(unset).toMatchObject({ code: 78, stdout: '' });
  expect(unset.stderr).toContain('RABBITMQ_URL is missing');
});
