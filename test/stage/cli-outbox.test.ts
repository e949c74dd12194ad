import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { EVENTS_EXCHANGE } from '../../src/broker/index.js';
import { killAll } from '../support/processes.js';
import { openBench, type RelayBench } from '../support/relay.js';
import { freshDatabase, freshStores, type Stores } from '../support/stores.js';
import { startTwinbox, twinbox, type Printed } from '../support/twinbox.js';
import { until } from '../support/until.js';

let stores: Stores;
let bench: RelayBench;
const run = (...args: string[]): Promise<Printed> => twinbox(stores.env, ...args);

beforeAll(async () => {
  stores = await freshStores();
  bench = await openBench(stores.env);
});
afterAll(async () => {
  await bench.close();
  await stores.drop();
});
beforeEach(() => bench.pool.query('TRUNCATE outbox, outbox_audit RESTART IDENTITY'));
afterEach(killAll);

interface Listed {
  eventId: string;
  id: string;
  type: string;
  state: string;
  publishedAt: string | null;
  lastError: string | null;
}
interface Audit {
  command: string;
  reason: string | null;
  who: string;
  rows: number;
}
async function audit(): Promise<Audit[]> {
  return (await bench.pool.query<Audit>('SELECT command, reason, who, rows FROM outbox_audit ORDER BY id'))
    .rows;
}
async function publishedAt(...instants: string[]): Promise<void> {
  for (const instant of instants)
    await bench.pool.query(
      `INSERT INTO outbox (type, body, published_at) VALUES ('order.placed', '{}', $1)`,
      [instant],
    );
}

test('R-04 a type that is never bound ends parked, is listed, and is sent again as a whole with one command', async () => {
  const lost = await bench.write(10, 'never.bound');
  await bench.write(2);
  const relay = bench.start({ RELAY_MAX_ATTEMPTS: '2', RELAY_BACKOFF_FIRST_MS: '20' });
  await until(
    'ten rows are parked',
    async () => (await bench.rows()).filter(({ parked }) => parked).length === 10,
  );

  const parked = await run('outbox', 'parked', '--type', 'never.*', '--json');
  expect(parked.code).toBe(0);
  const listed = parked.json() as Listed[];
  expect(listed.map(({ eventId }) => eventId).sort()).toEqual([...lost].sort());
  for (const { lastError, id } of listed) {
    expect(lastError).toContain('NO_ROUTE');
    expect(typeof id).toBe('string');
  }
  const shown = await run('outbox', 'retry', '--type', 'never.bound');
  expect(shown.stdout).toContain('would retry 10 rows');
  expect(shown.stdout).toContain('--yes');
  expect((await bench.rows()).filter((row) => row.parked)).toHaveLength(10);

  const queue = `bound.${randomUUID().slice(0, 8)}`;
  await bench.channel.assertQueue(queue, { durable: true });
  await bench.channel.bindQueue(queue, EVENTS_EXCHANGE, 'never.bound');
  const done = await run('outbox', 'retry', '--type', 'never.bound', '--reason', 'bound now', '--yes');

  expect(done.stdout).toContain('10 rows of 10 changed');
  expect(done.code).toBe(0);
  await bench.allPublished(12);
  expect((await bench.channel.checkQueue(queue)).messageCount).toBe(10);
  expect(await audit()).toEqual([
    { command: 'outbox retry', reason: 'bound now', who: expect.stringContaining('@') as string, rows: 10 },
  ]);
  await relay.stop();
});

test('R-07 one parked row is sent again under the same id', async () => {
  const [id = ''] = await bench.write(1);
  await bench.pool.query(`UPDATE outbox SET parked_at = now() - interval '10 years', attempts = 24`);
  expect((await run('outbox', 'purge', '--older-than', '1', '--yes')).stdout).toContain(
    'would delete 0 rows',
  );
  const arrivedBefore = bench.arrived.length;
  bench.start();
  const { code } = await run('outbox', 'retry', id.toUpperCase(), '--yes');
  expect(code).toBe(0);
  await bench.allPublished(1);
  await until('it arrives', () => bench.arrived.length > arrivedBefore);
  expect(bench.arrived.slice(arrivedBefore)).toEqual([id]);
});

test('ids that are not parked are told, and nothing is changed', async () => {
  const [id = ''] = await bench.write(1);
  const { code, stderr } = await run('outbox', 'retry', id, '--yes');
  expect(code).toBe(1);
  expect(stderr).toContain('neither parked nor waiting');
  expect(await audit()).toEqual([]);
});

test('R-14 an instant from the list, taken as both ends of a window, is exactly its row', async () => {
  await publishedAt('2026-03-01T12:00:00.123456Z', '2026-03-01T12:00:00.123457Z');
  const listed = (await run('outbox', 'list', '--state', 'published', '--json')).json() as Listed[];
  const first = listed.find(({ id }) => id === '1')!;
  expect(first.publishedAt).toBe('2026-03-01T12:00:00.123456Z');
  const window = ['--from', first.publishedAt!, '--to', first.publishedAt!];

  const again = (await run('outbox', 'list', ...window, '--json')).json() as Listed[];
  expect(again.map(({ id }) => id)).toEqual(['1']);
  const shown = await run('republish', ...window);
  expect(shown.stdout).toContain('would republish 1 row,');
  const done = await run('republish', ...window, '--reason', 'a lost mailbox', '--yes');

  expect(done.code).toBe(0);
  expect((await bench.rows()).map(({ published }) => published)).toEqual([false, true]);
});

test('a republish says what inboxes have forgotten, and which only a lost mailbox would take', async () => {
  await bench.pool.query(
    `INSERT INTO outbox (type, body, published_at)
     SELECT 'order.placed', '{}', now() - days * interval '1 day' FROM unnest(ARRAY[1, 2, 15]) AS days`,
  );
  const { code, stderr, stdout } = await run('republish', '--from', '30d', '--to', 'now');
  expect(code).toBe(0);
  expect(stderr).toContain('WARNING: 1 row published more than 14 d ago');
  expect(stderr).toContain('2 rows published within 14 d');
  expect(stdout).toContain('nothing was changed');
  const refused = await run('republish', '--from', '30d', '--to', 'now', '--yes');
  expect(refused.code).toBe(2);
  expect(refused.stderr).toContain('--reason');
  expect((await bench.rows()).every(({ published }) => published)).toBe(true);
});

test.each([
  ['Ctrl-C', 'SIGINT'],
  ['kill -9', 'SIGKILL'],
] as const)('a republish that %s ends has written down how far it came', async (_, signal) => {
  await bench.pool.query(
    `INSERT INTO outbox (type, body, published_at)
     SELECT 'order.placed', '{}', '2026-03-01T12:00:00Z' FROM generate_series(1, 1000)`,
  );
  const window = ['--from', '2026-03-01T12:00:00Z', '--to', '2026-03-01T12:00:00Z', '--reason', 'a "test"'];
  const command = startTwinbox(stores.env, ['republish', ...window, '--rate', '100', '--yes']);
  const pending = async (): Promise<number> =>
    (await bench.rows()).filter(({ published }) => !published).length;
  await until('it is under way', async () => (await pending()) > 0);
  command.process.kill(signal);
  const { code, stderr } = await command.ended;

  const changed = await until('its statement under way has ended', async () => {
    const [one, lines, two] = [await pending(), await audit(), await pending()];
    return one === two && lines[0]?.rows === one ? one : undefined;
  });
  expect(changed).toBeGreaterThan(0);
  expect(changed).toBeLessThan(1_000);
  if (signal === 'SIGINT') {
    expect(code).toBe(1);
    const rest = `twinbox republish --from 2026-03-01T12:00:00.000000Z --to 2026-03-01T12:00:00.000000Z --rate 100 --reason 'a "test"' --yes`;
    expect(stderr).toContain(rest);
  }
  const rest = await run('republish', ...window, '--rate', '100000', '--yes');
  expect(rest.stdout).toContain(`${1_000 - changed} rows of ${1_000 - changed} pending again`);
  expect(await pending()).toBe(1_000);
  expect((await audit()).map(({ rows }) => rows)).toEqual([changed, 1_000 - changed]);
});

test('show gives everything of a row; a body that is no text as base64', async () => {
  const [text, bytes] = [randomUUID(), randomUUID()];
  await bench.pool.query(
    `INSERT INTO outbox (event_id, type, key, body, headers)
     VALUES ($1, 'order.placed', 'k', convert_to('{"a":"ü"}', 'UTF8'), '{"tenant": "t-1"}'),
            ($2, 'order.placed', NULL, '\\xff00', '{}')`,
    [text, bytes],
  );
  const shown = (await run('outbox', 'show', text, '--json')).json();
  expect(shown).toMatchObject({
    eventId: text,
    key: 'k',
    headers: { tenant: 't-1' },
    attempts: 0,
    lastError: null,
    nextAttemptAt: null,
    body: { bytes: 10, encoding: 'utf8', content: '{"a":"ü"}', cut: false },
  });
  expect((await run('outbox', 'show', bytes, '--json')).json()).toMatchObject({
    body: { encoding: 'base64', content: '/wA=' },
  });
  expect((await run('outbox', 'show', text)).stdout).toContain('{"a":"ü"}');
  const missing = await run('outbox', 'show', randomUUID());
  expect(missing.code).toBe(1);
  expect(missing.stderr).toContain('the outbox has no row');
});

test('a list never holds a body, and what a producer wrote does not steer the terminal', async () => {
  await bench.pool.query(`INSERT INTO outbox (type, key, body) VALUES ('a%b', E'\\x1b[31m', 'secret')`);
  await bench.pool.query(`INSERT INTO outbox (type, body) VALUES ('aXb', 'secret')`);
  const { stdout } = await run('outbox', 'list', '--type', 'a%*');
  expect(stdout).toContain('\\u001b[31m');
  expect(stdout).not.toContain('aXb');
  const json = await run('outbox', 'list', '--json');
  expect(json.json()).toHaveLength(2);
  expect(json.stdout).not.toContain('secret');
  expect((json.json() as Listed[])[0]).not.toHaveProperty('body');
});

test('a purge by hand is shown first, then done and written down', async () => {
  await bench.pool.query(
    `INSERT INTO outbox (type, body, published_at)
     SELECT 'order.placed', '{}', now() - interval '20 days' FROM generate_series(1, 1001)`,
  );
  await bench.write(1);
  expect((await run('outbox', 'purge')).stdout).toContain('would delete 1001 rows');
  expect(await bench.rows()).toHaveLength(1_002);
  expect((await run('outbox', 'purge', '--yes')).stdout).toBe('1001 rows deleted\n');
  expect((await bench.rows()).map(({ published }) => published)).toEqual([false]);
  expect((await audit())[0]).toMatchObject({ command: 'outbox purge --older-than 7', rows: 1_001 });
});

test.each([
  [['outbox'], 'what about the outbox?'],
  [['outbox', 'lost'], 'there is no command'],
  [['outbox', 'list', '--from', '2026-03-01T12:00:00'], 'no time zone'],
  [['outbox', 'list', '--from', '2026-02-30T12:00:00Z'], 'there is no such time'],
  [['outbox', 'list', '--from', '1h', '--to', '2h'], 'before it begins'],
  [['outbox', 'list', '--state', 'lost'], '--state takes one of'],
  [['outbox', 'retry'], 'retry which rows?'],
  [['outbox', 'retry', '--all', '--type', 'x'], 'goes with nothing else'],
  [['outbox', 'show'], 'takes one event id'],
  [['republish', '--from', '1h'], 'a whole window'],
  [['status', '--nope'], 'nope'],
])('%j is a usage error that says why', async (args, why) => {
  const { code, stderr, stdout } = await run(...args);
  expect(code).toBe(2);
  expect(stderr).toContain(why);
  expect(stdout).toBe('');
});

test('an outbox that is not migrated, and a setting that is missing, end with 78 and the fix', async () => {
  const empty = await freshDatabase();
  try {
    const { code, stderr } = await twinbox({ ...stores.env, DATABASE_URL: empty.url }, 'outbox', 'list');
    expect(stderr).toContain('run `twinbox migrate` first');
    expect(code).toBe(78);
  } finally {
    await empty.drop();
  }
  const without = await twinbox(
    { ...stores.env, DATABASE_URL: '' },
    'republish',
    '--from',
    '1h',
    '--to',
    'now',
  );
  expect(without.stderr).toContain('DATABASE_URL is missing');
  expect(without.code).toBe(78);
});

test('a server that is not there, and a table that is locked, are told with the fix', async () => {
  const away = await twinbox(
    { ...stores.env, DATABASE_URL: 'postgres://user:secret-word@127.0.0.1:1/app' },
    'outbox',
    'list',
  );
  expect(away.code).toBe(1);
  expect(away.stderr).toContain('nothing listens there');
  expect(away.stderr).not.toContain('secret-word');

  await bench.pool.query(`INSERT INTO outbox (type, body, parked_at) VALUES ('t', '', now())`);
  const other = await bench.pool.connect();
  try {
    await other.query('BEGIN');
    await other.query('LOCK TABLE outbox IN SHARE MODE');
    const locked = await run('outbox', 'retry', '--all', '--yes');
    expect(locked.code).toBe(1);
    expect(locked.stderr).toContain('another session holds the table');
  } finally {
    await other.query('ROLLBACK');
    other.release();
  }
  expect((await bench.rows()).map(({ parked }) => parked)).toEqual([true]);
  expect((await run('outbox', 'retry', '--all', '--yes')).code).toBe(0);
});
