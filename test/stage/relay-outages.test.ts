import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { EVENTS_EXCHANGE } from '../../src/broker/index.js';
import { folderOf } from '../../stack/folder.js';
import { openStack, type ServiceName } from '../../stack/index.js';
import { openBacklog, type Account, type Backlog, type Expected } from '../support/backlog.js';
import { brokerTool } from '../support/broker-node.js';
import { killAll, type LogLine, type Running } from '../support/processes.js';
import { startProxy, type Proxy } from '../support/proxy.js';
import { until } from '../support/until.js';

/** The servers of these tests go away, fall silent and fill up while a relay works. No outage costs a row anything. */
const ROOT = join(import.meta.dirname, '..', '..', '.stack');
const NAME = 'relay-outages';
/** Rows in flight at most, and so what one disturbance may send twice. */
const WINDOW = 200;
const stack = openStack({ root: ROOT, name: NAME });
let env: NodeJS.ProcessEnv;
let backlog: Backlog;
let proxy: Proxy | undefined;

beforeAll(async () => {
  for (const name of ['DATABASE_URL', 'RABBITMQ_URL', 'RABBITMQ_MANAGEMENT_URL'])
    Reflect.deleteProperty(process.env, name);
  await stack.remove();
  await Promise.all([stack.startService('postgres'), stack.startService('rabbitmq')]);
  env = { ...process.env, ...stack.urls() };
});
afterAll(() => stack.remove());
beforeEach(async () => {
  backlog = await openBacklog(env);
});
afterEach(async () => {
  await killAll();
  await proxy?.close();
  proxy = undefined;
  await backlog.close();
});

const ctl = (...args: string[]): Promise<string> => brokerTool(folderOf(ROOT, NAME), 'rabbitmqctl', args);
const pidsOf = async (service: ServiceName): Promise<number[]> =>
  (await stack.status()).find((one) => one.service === service)?.pids ?? [];
const count = (relay: Running, event: string): number =>
  relay.lines.filter((line) => line.event === event).length;
const again = (relay: Running, event: string, seen: number): Promise<boolean> =>
  until(`${event} again`, () => count(relay, event) > seen, { ms: 40_000 });

interface Circumstances extends Partial<Expected> {
  readonly env?: NodeJS.ProcessEnv;
  readonly rows?: number;
}

/** Makes the fault while the relay publishes, then counts: the same process has to bring every row through. */
async function outage(
  fault: (relay: Running) => Promise<unknown>,
  { env: over = {}, rows = 10_000, ...expected }: Circumstances = {},
): Promise<Account> {
  const relay = backlog.start(over);
  await backlog.underLoad(rows, async () => {
    await until('it publishes', async () => (await backlog.published()) > rows / 20, { ms: 20_000 });
    await fault(relay);
  });
  const account = await backlog.account({ copies: WINDOW, ...expected });
  expect(await relay.stop()).toBe(0);
  return account;
}

/** Ends a server in one way or another, and has it back. */
const away = (service: ServiceName, event: string, end: () => Promise<void>) => async (relay: Running) => {
  const before = await pidsOf(service);
  await end();
  await relay.line(event);
  expect(await pidsOf(service)).not.toEqual(before);
};

test('a broker that is restarted in the middle of a backlog', async () => {
  const { missing } = await outage(away('rabbitmq', 'broker.gone', () => stack.restart('rabbitmq')));
  expect(missing).toEqual([]);
});

test('R-07 a broker that is away for a while: no attempt is burnt, and all is out soon after it is back', async () => {
  const { missing } = await outage(
    async (relay) => {
      await stack.stop(['rabbitmq']);
      expect(await pidsOf('rabbitmq')).toEqual([]);
      await backlog.write(1_000);
      await relay.line('broker.unreachable');
      const out = await backlog.published();
      const until_ = Date.now() + 10_000;
      await until('ten seconds', () => Date.now() > until_, { ms: 11_000 });
      expect(await backlog.published()).toBe(out);
      await stack.startService('rabbitmq');
    },
    { ms: 15_000 },
  );
  expect(missing).toEqual([]);
});

test('an operator closes all connections', async () => {
  const { missing } = await outage(async (relay) => {
    await ctl('close_all_connections', 'maintenance');
    await relay.line('broker.gone');
    await again(relay, 'broker.connected', 1);
  });
  expect(missing).toEqual([]);
});

const memoryOf = (relay: Running): number =>
  Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${relay.pid}/status`, 'utf8'))?.[1]) / 1024;

/** Looks again and again while the broker blocks; says by how many MiB the relay grew. */
async function whileBlocked(relay: Running, forMs: number): Promise<number> {
  // What was confirmed before the block is marked still.
  let out = -1;
  await until(
    'nothing is marked any more',
    async () => {
      const before = out;
      out = await backlog.published();
      return out === before;
    },
    { everyMs: 500 },
  );
  const start = memoryOf(relay);
  let most = start;
  const end = Date.now() + forMs;
  await until(
    'the block has lasted',
    async () => {
      most = Math.max(most, memoryOf(relay));
      expect(await backlog.published()).toBe(out);
      return Date.now() > end;
    },
    { ms: forMs + 2_000, everyMs: 250 },
  );
  return most - start;
}

test('R-06 a broker short of memory: nothing is published or piled up meanwhile, all of it afterwards', async () => {
  // The answers that a blocked broker owes run out three times over, and nothing may be sent again before it unblocks.
  const relay = backlog.start({ RELAY_CONFIRM_TIMEOUT_MS: '2000' });
  await backlog.write(1);
  await until('it publishes', async () => (await backlog.published()) === 1);
  await ctl('set_vm_memory_high_watermark', '0.0001');
  try {
    expect(await ctl('eval', 'rabbit_alarm:get_alarms().')).toContain('memory');
    await backlog.write(100_000, 1_024);
    await relay.line('broker.blocked');
    expect(await whileBlocked(relay, 8_000)).toBeLessThan(50);
    expect(await backlog.pending()).toBeGreaterThan(100_000 - WINDOW);
  } finally {
    await ctl('set_vm_memory_high_watermark', '0.4');
  }
  await relay.line('broker.unblocked');
  expect((await backlog.account({ copies: WINDOW, ms: 90_000 })).missing).toEqual([]);
  expect(await relay.stop()).toBe(0);
}, 150_000);

test('a broker short of disk space', async () => {
  const { missing } = await outage(async (relay) => {
    await ctl('set_disk_free_limit', '100000000000000');
    try {
      expect(await ctl('eval', 'rabbit_alarm:get_alarms().')).toContain('disk');
      await relay.line('broker.blocked');
      await whileBlocked(relay, 2_000);
      expect(await backlog.pending()).toBeGreaterThan(0);
    } finally {
      await ctl('set_disk_free_limit', '50MB');
    }
  });
  expect(missing).toEqual([]);
});

test('a link to the broker that falls silent is given up by its heartbeat', async () => {
  const url = new URL(env.RABBITMQ_URL ?? '');
  const link = (proxy = await startProxy({ host: url.hostname, port: Number(url.port) }));
  url.port = String(link.port);
  url.searchParams.set('heartbeat', '2');
  const { missing } = await outage(
    async (relay) => {
      link.strand();
      const connections = link.accepted;
      const out = await backlog.published();
      await relay.line('broker.gone');
      expect(await backlog.published()).toBeLessThanOrEqual(out + WINDOW);
      await until('another connection', () => link.accepted > connections);
    },
    { env: { RABBITMQ_URL: url.href } },
  );
  expect(missing).toEqual([]);
});

const QUICK = { RELAY_BACKOFF_FIRST_MS: '500', RELAY_BACKOFF_CAP_MS: '500', RELAY_MAX_ATTEMPTS: '100' };

/** Rows that wait because nothing is bound for them; whatever else is said of a row is wrong. */
async function unroutable(): Promise<number> {
  const { rows } = await backlog.pool.query<{ error: string; n: number }>(
    `SELECT left(last_error, 8) AS error, count(*)::int AS n FROM outbox WHERE last_error IS NOT NULL GROUP BY 1`,
  );
  expect(rows.filter(({ error }) => error !== 'NO_ROUTE')).toEqual([]);
  return rows[0]?.n ?? 0;
}

test('a queue that is deleted meanwhile: what comes after it waits, and goes once there is one again', async () => {
  let before = new Set<string>();
  let deleted = 0;
  const { missing } = await outage(
    async () => {
      deleted = (await backlog.atBroker((channel) => channel.deleteQueue(backlog.queue))).messageCount;
      expect(deleted).toBeGreaterThan(0);
      await until('rows come back', async () => (await unroutable()) > WINDOW);
      const { rows } = await backlog.pool.query<{ id: string }>(
        'SELECT event_id::text AS id FROM outbox WHERE published_at IS NOT NULL',
      );
      before = new Set(rows.map(({ id }) => id));
      await backlog.bind();
    },
    { env: QUICK, returned: true },
  );
  // What the queue held is gone with it, and nothing else. The broker counts before it deletes, and confirms what comes
  // in between.
  expect(missing.filter((id) => !before.has(id))).toEqual([]);
  expect(missing.length).toBeLessThanOrEqual(deleted + WINDOW);
});

test('R-04 a binding that is missing meanwhile', async () => {
  const { missing } = await outage(
    async () => {
      await backlog.atBroker((channel) =>
        channel.unbindQueue(backlog.queue, EVENTS_EXCHANGE, 'order.placed'),
      );
      await until('rows come back', async () => (await unroutable()) > WINDOW);
      await backlog.bind();
    },
    { env: QUICK, returned: true, copies: 0 },
  );
  expect(missing).toEqual([]);
});

// With a window of 1 the row that hears 404 is alone in flight, which convicts a row of any fault of its own. Each row
// then costs a confirm: fewer of them.
test.each([
  { window: WINDOW, rows: 10_000 },
  { window: 1, rows: 1_000 },
])('an exchange that is deleted convicts no row, window $window', async ({ window, rows }) => {
  const url = new URL(env.RABBITMQ_URL ?? '');
  [url.username, url.password] = ['limited', 'limited'];
  const allow = (configure: string): Promise<string> =>
    ctl('set_permissions', '-p', '/', 'limited', configure, '.*', '.*');
  await ctl('add_user', 'limited', 'limited');
  try {
    await allow('.*');
    const { missing } = await outage(
      async (relay) => {
        await allow('^$'); // or it would declare the exchange again, and its rows were returned
        await backlog.atBroker((channel) => channel.deleteExchange(EVENTS_EXCHANGE));
        const closed = (line: LogLine): boolean =>
          line.event === 'broker.channel.closed' && line.code === 404;
        await until('the broker says 404', () => relay.lines.some(closed));
        await until('and 403', () =>
          relay.lines.some((line) => JSON.stringify(line).includes('ACCESS_REFUSED')),
        );
        await allow('.*');
        await backlog.bind();
      },
      { env: { RABBITMQ_URL: url.href, RELAY_WINDOW: String(window) }, rows },
    );
    expect(missing).toEqual([]);
  } finally {
    await ctl('delete_user', 'limited');
  }
});

test('a Postgres that is restarted', async () => {
  const { missing } = await outage(away('postgres', 'relay.postgres', () => stack.restart('postgres')));
  expect(missing).toEqual([]);
});

test('a Postgres that is killed', async () => {
  const { missing } = await outage(
    away('postgres', 'relay.postgres', async () => {
      await stack.kill('postgres');
      await stack.startService('postgres');
    }),
  );
  expect(missing).toEqual([]);
});

test('a session of the relay that an operator ends', async () => {
  const { missing } = await outage(async (relay) => {
    const owners = `SELECT DISTINCT pid FROM pg_locks JOIN pg_stat_activity USING (pid)
                     WHERE locktype = 'advisory' AND granted AND datname = current_database()
                       AND application_name LIKE 'relay%'`;
    const { rows } = await backlog.pool.query<{ ended: boolean }>(
      `SELECT pg_terminate_backend(pid) AS ended FROM (${owners}) AS owner`,
    );
    expect(rows.length).toBeGreaterThan(0);
    expect(rows.every(({ ended }) => ended)).toBe(true);
    await relay.line('relay.postgres');
  });
  expect(missing).toEqual([]);
});

test('statements that are cancelled because somebody holds the table', async () => {
  const { missing } = await outage(async (relay) => {
    const holder = await backlog.pool.connect();
    const cancelled = (line: LogLine): boolean => /55P03|57014|timeout/.test(JSON.stringify(line));
    try {
      await holder.query('BEGIN; LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE');
      await until('three were cancelled', () => relay.lines.filter(cancelled).length >= 3, { ms: 30_000 });
    } finally {
      await holder.query('ROLLBACK');
      holder.release();
    }
  });
  expect(missing).toEqual([]);
});
