import { randomUUID } from 'node:crypto';
import { connect as dial, type Channel, type ChannelModel } from 'amqplib';
import pg from 'pg';
import { EVENTS_EXCHANGE } from '../../src/broker/index.js';
import { migrateOutbox } from '../../src/outbox/index.js';
import { startProcess, startType, type Running } from './processes.js';
import { until } from './until.js';

export interface Row {
  readonly event_id: string;
  readonly type: string;
  readonly attempts: number;
  readonly last_error: string | null;
  readonly published: boolean;
  readonly parked: boolean;
  readonly waits: boolean;
}

/** An outbox, a queue bound for `order.placed`, and everything that arrives there. */
export interface RelayBench {
  readonly pool: pg.Pool;
  readonly channel: Channel;
  /** Message ids in the order of their arrival, copies included. */
  readonly arrived: string[];
  /** Starts a relay with quick polling; `over` wins. */
  start(over?: NodeJS.ProcessEnv): Running;
  /** The same, which kills itself with -9 at the probe point. */
  startProbed(killAt: string, over?: NodeJS.ProcessEnv): Running;
  write(count: number, type?: string): Promise<string[]>;
  rows(): Promise<Row[]>;
  /** The backends of the relays that own slots, and how many each owns. */
  owners(): Promise<Map<number, number>>;
  allPublished(count: number, ms?: number): Promise<void>;
  close(): Promise<void>;
}

export async function openBench(env: NodeJS.ProcessEnv): Promise<RelayBench> {
  const url = env.DATABASE_URL ?? '';
  await migrateOutbox(url);
  const pool = new pg.Pool({ connectionString: url, max: 10 });
  pool.on('error', () => undefined);
  const model: ChannelModel = await dial(env.RABBITMQ_URL ?? '');
  model.on('error', () => undefined);
  const channel = await model.createChannel();
  const arrived: string[] = [];
  await channel.assertExchange(EVENTS_EXCHANGE, 'topic', { durable: true });
  const queue = `seen.${randomUUID().slice(0, 8)}`;
  await channel.assertQueue(queue, { durable: true, arguments: { 'x-queue-type': 'quorum' } });
  await channel.bindQueue(queue, EVENTS_EXCHANGE, 'order.placed');
  await channel.consume(
    queue,
    (message) => {
      if (message !== null) arrived.push(String(message.properties.messageId));
    },
    { noAck: true },
  );

  return {
    pool,
    channel,
    arrived,
    start: (over = {}) => startType('relay', [], { ...env, RELAY_POLL_MS: '50', ...over }),
    startProbed: (killAt, over = {}) =>
      startProcess(process.execPath, ['--import', 'tsx', 'test/support/actors/probed.ts', 'relay', killAt], {
        ...env,
        RELAY_POLL_MS: '50',
        ...over,
      }),
    write: async (count, type = 'order.placed') => {
      const { rows } = await pool.query<{ event_id: string }>(
        `INSERT INTO outbox (type, body) SELECT $1, '\\x7b7d' FROM generate_series(1, $2) RETURNING event_id`,
        [type, count],
      );
      return rows.map((row) => row.event_id);
    },
    rows: async () => {
      const { rows } = await pool.query<Row>(
        `SELECT event_id, type, attempts, last_error, published_at IS NOT NULL AS published,
                parked_at IS NOT NULL AS parked, next_attempt_at > clock_timestamp() IS TRUE AS waits
           FROM outbox ORDER BY id`,
      );
      return rows;
    },
    owners: async () => {
      const { rows } = await pool.query<{ pid: number; slots: number }>(
        `SELECT pid, count(*)::int AS slots FROM pg_locks JOIN pg_stat_activity USING (pid)
          WHERE locktype = 'advisory' AND granted AND classid = 746564 AND objid < 32 AND datname = current_database()
          GROUP BY pid`,
      );
      return new Map(rows.map(({ pid, slots }) => [pid, slots]));
    },
    allPublished: async (count, ms = 15_000) => {
      await until(
        `${count} rows published`,
        async () => {
          const { rows } = await pool.query<{ count: number }>(
            'SELECT count(*)::int AS count FROM outbox WHERE published_at IS NOT NULL',
          );
          return rows[0]?.count === count;
        },
        { ms },
      );
    },
    close: async () => {
      await model.close().catch(() => undefined); // the broker may have been killed
      await pool.end();
    },
  };
}

/** How often each id arrived more than once, in all. */
export const copies = (ids: readonly string[]): number => ids.length - new Set(ids).size;
