import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { openStack } from '../../stack/index.js';
import { killAll, type Running } from '../support/processes.js';
import { copies, openBench, type RelayBench } from '../support/relay.js';
import { until } from '../support/until.js';

/** Servers that these tests may kill and bend; the shared ones are nobody's to break. */
const ROOT = join(import.meta.dirname, '..', '..', '.stack');
const NAME = 'relay-test';
const stack = openStack({ root: ROOT, name: NAME });
let env: NodeJS.ProcessEnv;
let bench: RelayBench;

beforeAll(async () => {
  for (const name of ['DATABASE_URL', 'RABBITMQ_URL', 'RABBITMQ_MANAGEMENT_URL'])
    Reflect.deleteProperty(process.env, name);
  await stack.remove();
  await stack.startService('postgres');
  await stack.startService('rabbitmq');
  env = { ...process.env, ...stack.urls() };
});
afterAll(() => stack.remove());
beforeEach(async () => {
  bench = await openBench(env);
  await bench.pool.query('TRUNCATE outbox');
});
afterEach(async () => {
  await killAll();
  await bench.close();
});

/** Runs Erlang in the broker, as its operator's tool does. */
async function inBroker(expression: string): Promise<string> {
  const folder = join(ROOT, NAME, 'rabbitmq');
  const state = JSON.parse(readFileSync(join(ROOT, NAME, 'state.json'), 'utf8')) as {
    ports: { rabbitmq: { epmd: number } };
  };
  const node = /twinbox-[\w-]+@localhost/.exec(stack.logs('rabbitmq'))?.[0] ?? '';
  const { stdout } = await promisify(execFile)(
    '/usr/lib/rabbitmq/bin/rabbitmqctl',
    ['-n', node, 'eval', expression],
    {
      env: {
        PATH: process.env.PATH,
        HOME: join(folder, 'home'),
        ERL_EPMD_ADDRESS: '127.0.0.1',
        ERL_EPMD_PORT: String(state.ports.rabbitmq.epmd),
      },
    },
  );
  return stdout.trim();
}

const channelsClosed = (relay: Running): number =>
  relay.lines.filter(({ event }) => event === 'broker.channel.closed').length;

test('R-05 rows above a limit of the broker that the relay does not know are found and parked alone', async () => {
  const limit = 1_048_576;
  await inBroker(`application:set_env(rabbit, max_message_size, ${limit}).`);
  expect(await inBroker('application:get_env(rabbit, max_message_size).')).toBe(`{ok,${limit}}`);
  await bench.pool.query(
    `INSERT INTO outbox (type, body)
     SELECT 'order.placed', CASE WHEN n IN (10, 50, 90) THEN decode(repeat('00', 2097152), 'hex') ELSE '\\x7b7d' END
       FROM generate_series(1, 100) AS n`,
  );
  const relay = bench.start();
  await bench.allPublished(97, 30_000);
  const rows = await until('three parked', async () => {
    const all = await bench.rows();
    return all.filter(({ parked }) => parked).length === 3 && all;
  });
  const parkedAt = rows.flatMap(({ parked }, index) => (parked ? [index + 1] : []));
  expect(parkedAt).toEqual([10, 50, 90]);
  for (const row of rows.filter(({ parked }) => parked)) {
    expect(row.last_error).toContain('PRECONDITION_FAILED');
    expect(row.attempts).toBe(1);
  }
  expect(rows.filter(({ parked }) => !parked).every(({ attempts }) => attempts === 0)).toBe(true);
  expect(channelsClosed(relay)).toBeGreaterThan(0);
  expect(channelsClosed(relay)).toBeLessThanOrEqual(6);
  await until('the neighbours arrived', () => new Set(bench.arrived).size === 97);
});

test('a Postgres that is killed and comes back is used again, in the same process', async () => {
  const relay = bench.start();
  await bench.write(10);
  await bench.allPublished(10);
  await stack.kill('postgres');
  await relay.line('relay.postgres');
  await stack.startService('postgres');
  await until('it takes writes', () => bench.write(10));
  await bench.allPublished(20);
  await until('all arrived', () => bench.arrived.length >= 20);
  expect(copies(bench.arrived)).toBe(0);
  expect(relay.lines.filter(({ event }) => event === 'relay.slots')).toHaveLength(2);
});

test('R-12 nothing listens, so nothing can fail to listen again: an event goes within 300 ms, before and after', async () => {
  const relay = bench.start({ RELAY_POLL_MS: '250' });
  await relay.line('relay.slots');
  await relay.line('broker.connected');
  const tenEvents = async (): Promise<void> => {
    for (let n = 0; n < 10; n += 1) {
      const [id] = await bench.write(1);
      await until('it is there', () => bench.arrived.includes(id!), { ms: 300, everyMs: 5 });
    }
  };
  const sessions = async (): Promise<number[]> => {
    const { rows } = await bench.pool.query<{ pid: number }>(
      `SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'relay%'`,
    );
    return rows.map(({ pid }) => pid);
  };
  await tenEvents();
  const before = await sessions();
  await bench.pool.query('SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) AS pid', [before]);
  await until('it is back on another session', async () => {
    const now = await sessions();
    return now.length > 0 && !now.some((pid) => before.includes(pid));
  });
  await until('and publishes', async () => (await bench.owners()).size === 1);
  await tenEvents();
  await stack.restart('postgres');
  await until('it takes writes', () => bench.write(1), { ms: 20_000 });
  await until('it owns slots again', async () => (await bench.owners()).size === 1, { ms: 10_000 });
  await tenEvents();
  expect(relay.lines.filter(({ event }) => event === 'process.started')).toHaveLength(1);
});

test('R-10 a Postgres that became read-only is left: nothing goes out, and all is marked when it writes again', async () => {
  const relay = bench.start({ RELAY_WINDOW: '10' });
  await bench.write(1);
  await bench.allPublished(1);
  const owners = (): number => relay.lines.filter(({ event }) => event === 'relay.slots').length;
  const readOnly = async (value: string): Promise<void> => {
    await bench.pool.query(`ALTER SYSTEM SET default_transaction_read_only = ${value}`);
    await bench.pool.query('SELECT pg_reload_conf()');
  };
  const writer = await bench.pool.connect();
  try {
    await writer.query('SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE'); // survives the reload
    await readOnly('on');
    await until('the server is read-only', async () => {
      const { rows } = await bench.pool.query<{ value: string }>(
        `SELECT current_setting('default_transaction_read_only') AS value`,
      );
      return rows[0]?.value === 'on';
    });
    await writer.query(
      `INSERT INTO outbox (type, body) SELECT 'order.placed', '' FROM generate_series(1, 100)`,
    );
    await until('the relay gave the connection up', () =>
      relay.lines.some(({ event, msg }) => event === 'relay.postgres' && msg.includes('read-only')),
    );
    const out = bench.arrived.length;
    const looked = relay.lines.length;
    await until('it looked again, several times', () => {
      return relay.lines.slice(looked).filter(({ event }) => event === 'relay.postgres').length >= 3;
    });
    expect(bench.arrived).toHaveLength(out);
    expect(out).toBeLessThanOrEqual(1 + 10); // the window whose mark was refused
    expect(copies(bench.arrived)).toBe(0);
  } finally {
    await writer.query('ALTER SYSTEM RESET default_transaction_read_only');
    await writer.query('SELECT pg_reload_conf()');
    writer.release(true);
  }
  await bench.allPublished(101, 10_000);
  expect(owners()).toBe(2);
  expect(copies(bench.arrived)).toBeLessThanOrEqual(10);
});

test('R-07 a broker that is killed burns no attempt; what was written meanwhile goes when it is back', async () => {
  // RabbitMQ 3.10 enters a new quorum queue into its directory on disk only at a clean stop (or minutes later): a
  // queue younger than that comes back from a kill without a leader, for ever. That is not the fault meant here.
  await stack.restart('rabbitmq');
  const relay = bench.start();
  await bench.write(1);
  await bench.allPublished(1);
  await stack.kill('rabbitmq');
  await relay.line('broker.gone');
  await bench.write(50);
  await relay.line('broker.unreachable');
  const looked = relay.lines.length;
  await until('several tries failed', () => {
    return relay.lines.slice(looked).filter(({ event }) => event === 'broker.unreachable').length >= 3;
  });
  const rows = await bench.rows();
  expect(rows.filter(({ published }) => !published)).toHaveLength(50);
  expect(rows.every(({ attempts, parked }) => attempts === 0 && !parked)).toBe(true);
  await stack.startService('rabbitmq');
  await bench.allPublished(51, 15_000);
  expect(relay.lines.some(({ event }) => event === 'process.stopping')).toBe(false);
});
