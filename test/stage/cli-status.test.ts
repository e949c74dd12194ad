import pg from 'pg';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { choosePorts } from '../../stack/ports.js';
import { rabbitmq } from '../../stack/rabbitmq.js';
import type { Check } from '../../src/cli/doctor-checks.js';
import type { VacuumHolder } from '../../src/outbox/index.js';
import { brokerNode, brokerPrograms } from '../support/broker-node.js';
import { startPgBouncer } from '../support/pgbouncer.js';
import { killAll, startType } from '../support/processes.js';
import { startProxy, type Proxy } from '../support/proxy.js';
import { freshDatabase, freshStores, type Stores } from '../support/stores.js';
import { twinbox, type Printed } from '../support/twinbox.js';
import { until } from '../support/until.js';

let stores: Stores;
let pool: pg.Pool;
const status = (over: NodeJS.ProcessEnv = {}, ...args: string[]): Promise<Printed> =>
  twinbox({ ...stores.env, ...over }, 'status', ...args);

beforeAll(async () => {
  stores = await freshStores();
  expect((await twinbox(stores.env, 'migrate')).code).toBe(0);
  pool = new pg.Pool({ connectionString: stores.env.DATABASE_URL, max: 3 });
  pool.on('error', () => undefined);
});
afterAll(async () => {
  await pool.end();
  await stores.drop();
});

const proxies: Proxy[] = [];
afterEach(async () => {
  await killAll();
  await Promise.all(proxies.splice(0).map((proxy) => proxy.close()));
});

/** The address, by way of a wire that can be broken. */
async function throughProxy(address: string): Promise<{ url: string; proxy: Proxy }> {
  const url = new URL(address);
  const proxy = await startProxy({ host: url.hostname, port: Number(url.port) });
  proxies.push(proxy);
  url.port = String(proxy.port);
  return { url: url.href, proxy };
}

const hop = ({ stdout }: Printed, name: string): string =>
  stdout.split('\n').find((line) => line.startsWith(name)) ?? '';

test('all is well while every process runs; what a person has to look at is told first, and gives 1', async () => {
  const relay = startType('relay', [], stores.env);
  const ingest = startType('ingest', [], stores.env);
  const well = await until(
    'all is well',
    async () => {
      const printed = await status();
      return printed.code === 0 ? printed : undefined;
    },
    { ms: 30_000, everyMs: 500 },
  );
  expect(well.stdout.split('\n')[0]).toBe('all is well');
  expect(hop(well, 'relays')).toContain('32 of 32 ordering slots owned');
  expect(hop(well, 'mailbox stats')).toContain('1 consumer');
  expect(hop(well, 'broker')).toContain('takes messages');

  await pool.query(
    `INSERT INTO outbox (type, body, parked_at, last_error) VALUES ('t', '', now(), 'NO_ROUTE x')`,
  );
  const parked = await status();
  expect(parked.code).toBe(1);
  expect(parked.stdout.split('\n')[0]).toBe('somebody is needed: 1 row parked (twinbox outbox parked)');
  expect(hop(parked, 'outbox')).toContain('1 parked (unroutable 1)');
  await pool.query('TRUNCATE outbox');

  expect(await ingest.stop()).toBe(0);
  expect(await relay.stop()).toBe(0);
  const json = (await status({}, '--json')).json() as { ok: boolean; problems: string[] };
  expect(json.ok).toBe(false);
  expect(json.problems).toEqual([
    expect.stringContaining('no relay publishes'),
    expect.stringContaining('nobody consumes the mailbox of notify'),
    expect.stringContaining('nobody consumes the mailbox of stats'),
  ]);
});

test('R-06 status says that the broker blocks publishers, and why', async () => {
  const node = await brokerNode({
    root: join(import.meta.dirname, '..', '..', '.stack'),
    name: 'status-broker',
    ports: await choosePorts(rabbitmq.portNames, {}, new Set()),
    programs: await brokerPrograms(),
  });
  try {
    await node.start();
    await node.tool('rabbitmqctl', ['set_vm_memory_high_watermark', '0.0001']);
    await until('the alarm is on', async () =>
      (await node.tool('rabbitmqctl', ['eval', 'rabbit_alarm:get_alarms().'])).includes('memory'),
    );
    const blocked = await status({ RABBITMQ_URL: node.url });
    expect(blocked.code).toBe(1);
    expect(blocked.stdout.split('\n')[0]).toContain('the broker blocks publishers (low on memory)');
    // The other questions go over a connection that publishes nothing: those are answered all the same.
    expect(hop(blocked, 'mailbox stats')).toContain('missing');

    await node.tool('rabbitmqctl', ['set_vm_memory_high_watermark', '0.4']);
    await until('the alarm is off', async () =>
      hop(await status({ RABBITMQ_URL: node.url }), 'broker').includes('takes messages'),
    );
  } finally {
    await node.remove();
  }
}, 120_000);

test.each([
  ['DATABASE_URL', 'outbox', 'Postgres gives no answer', 'inbox stats', '0 unfinished'],
  ['RABBITMQ_URL', 'broker', 'RabbitMQ gives no answer', 'outbox', '0 pending'],
  ['MONGODB_URI', 'inbox stats', 'MongoDB gives no answer', 'outbox', '0 pending'],
] as const)('%s that is frozen is told, and the others are shown', async (name, away, says, other, shows) => {
  const { url, proxy } = await throughProxy(stores.env[name]);
  proxy.freeze();
  const began = performance.now();
  const printed = await status({ [name]: url });
  expect(proxy.accepted).toBeGreaterThan(0);
  expect(hop(printed, away)).toContain(says);
  expect(hop(printed, other)).toContain(shows);
  expect(printed.code).toBe(1);
  expect(performance.now() - began).toBeLessThan(10_000);
});

interface Doctor {
  ok: boolean;
  checks: Check[];
  vacuumHolders: VacuumHolder[];
}
async function doctor(url = stores.env.DATABASE_URL): Promise<Doctor & { code: number | null }> {
  const printed = await twinbox({ ...stores.env, DATABASE_URL: url }, 'doctor', '--json');
  return { ...(printed.json() as Doctor), code: printed.code };
}
const check = ({ checks }: Doctor, name: string): Check => checks.find((one) => one.name === name)!;

test('the doctor finds a healthy database healthy, and says so on a page', async () => {
  const { code, ok, checks } = await doctor();
  expect(checks.filter(({ verdict }) => verdict === 'fail' || verdict === 'warn')).toEqual([]);
  expect([code, ok]).toEqual([0, true]);
  const page = await twinbox(stores.env, 'doctor');
  expect(page.stdout.trimEnd().split('\n')).toHaveLength(checks.length);
});

test('the doctor names the open transaction that holds back vacuum', async () => {
  const other = await pool.connect();
  try {
    await other.query(`SET application_name = 'monthly report'`);
    await other.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    const { rows } = await other.query<{ pid: number }>(
      'SELECT pg_backend_pid() AS pid, count(*) FROM outbox',
    );
    const found = await doctor();
    expect(found.vacuumHolders).toContainEqual(
      expect.objectContaining({
        kind: 'transaction',
        pid: rows[0]!.pid,
        name: 'monthly report',
        state: 'idle in transaction',
        query: 'SELECT pg_backend_pid() AS pid, count(*) FROM outbox',
      }),
    );
    expect(check(found, 'what holds back vacuum').says).toContain(`pid ${rows[0]!.pid}, "monthly report"`);
  } finally {
    await other.query('ROLLBACK');
    other.release();
  }
});

test('the doctor tells what is wrong with the fix: not migrated, read-only, settings, a stuck migration', async () => {
  const database = await freshDatabase();
  const client = new pg.Client({ connectionString: database.url });
  client.on('error', () => undefined);
  await client.connect();
  try {
    const empty = await doctor(database.url);
    expect(empty.code).toBe(1);
    expect(check(empty, 'migrated')).toMatchObject({ verdict: 'fail', fix: 'twinbox migrate' });
    await twinbox({ ...stores.env, DATABASE_URL: database.url }, 'migrate');

    await client.query('ALTER TABLE outbox RESET (autovacuum_vacuum_scale_factor)');
    await client.query('SELECT pg_advisory_lock(7465646201)');
    const bent = await doctor(database.url);
    expect(check(bent, 'migrated').verdict).toBe('ok');
    expect(check(bent, 'autovacuum of outbox')).toMatchObject({
      verdict: 'warn',
      fix: 'ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0)',
    });
    expect(check(bent, 'migrations under way').says).toMatch(/^pid \d+ for /);
    expect(bent.code).toBe(0);

    await client.query(
      `ALTER DATABASE ${new URL(database.url).pathname.slice(1)} SET default_transaction_read_only = on`,
    );
    const readOnly = await doctor(database.url);
    expect(readOnly.code).toBe(1);
    expect(check(readOnly, 'writable').fix).toContain('default_transaction_read_only');
  } finally {
    await client.end();
    await database.drop();
  }
});

test('the doctor finds a pooler in transaction mode, and a server that is away', async () => {
  const pooler = await startPgBouncer(stores.env.DATABASE_URL, 'transaction');
  try {
    const found = await doctor(pooler.url);
    expect(check(found, 'direct session')).toMatchObject({ verdict: 'fail' });
    expect(check(found, 'direct session').fix).toContain('session mode');
    expect(found.code).toBe(1);
  } finally {
    await pooler.close();
  }
  const away = await doctor(pooler.url);
  expect(away.checks).toEqual([expect.objectContaining({ name: 'Postgres', verdict: 'fail' })]);
  expect(away.code).toBe(1);
});
