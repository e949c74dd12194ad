import { randomUUID } from 'node:crypto';
import { connect as dial, type Channel } from 'amqplib';
import pg from 'pg';
import { expect } from 'vitest';
import { EVENTS_EXCHANGE } from '../../src/broker/index.js';
import { migrateOutbox } from '../../src/outbox/index.js';
import { startType, type Running } from './processes.js';
import { until } from './until.js';

/** Rows that wait at once, at most, while a fault is made: the relay has a full window in flight. */
const BUSY_ROWS = 1_500;

/**
 * An outbox and a quorum queue in which everything stays until it is counted: nothing here holds a connection that a
 * fault could cut, so whatever is lost was lost by the relay.
 */
export interface Backlog {
  readonly pool: pg.Pool;
  readonly queue: string;
  /** Starts a relay with quick polling; `over` wins. */
  start(over?: NodeJS.ProcessEnv): Running;
  /** Adds rows for `order.placed` with a body of so many bytes. */
  write(rows: number, bodyBytes?: number): Promise<void>;
  pending(): Promise<number>;
  published(): Promise<number>;
  /** Keeps more rows waiting than a window holds for as long as `work` takes, then fills up to `rows` in all. */
  underLoad<T>(rows: number, work: () => Promise<T>): Promise<T>;
  /** Takes every message out of the queue: their ids, in the order in which it held them. */
  take(): Promise<string[]>;
  /** Deletes or (un)binds queues, and whatever else an operator does. */
  atBroker<T>(work: (channel: Channel) => Promise<T>): Promise<T>;
  bind(): Promise<void>;
  /**
   * Waits until every row is published, then compares both sides id by id: none missing, none foreign, none parked,
   * no attempt burnt, and at most `copies` sent twice.
   */
  account(expected: Expected): Promise<Account>;
  close(): Promise<void>;
}

export interface Expected {
  /** Second copies at most: one window for each disturbance. */
  readonly copies: number;
  /** How long until all is published. */
  readonly ms?: number;
  /** Rows were returned by the broker, which counts. */
  readonly returned?: boolean;
}

export interface Account {
  readonly copies: number;
  /** Ids of the outbox that the queue does not hold. Empty, unless the fault threw messages away. */
  readonly missing: string[];
}

/** @param brokerUrl where this side looks at the broker; the relay is given `env.RABBITMQ_URL` */
export async function openBacklog(
  env: NodeJS.ProcessEnv,
  brokerUrl: string | (() => string) = env.RABBITMQ_URL ?? '',
): Promise<Backlog> {
  const databaseUrl = env.DATABASE_URL ?? '';
  await migrateOutbox(databaseUrl);
  const pool = new pg.Pool({ connectionString: databaseUrl, max: 4 });
  pool.on('error', () => undefined);
  await pool.query('TRUNCATE outbox RESTART IDENTITY');
  const queue = `seen.${randomUUID().slice(0, 8)}`;

  const atBroker = async <T>(work: (channel: Channel) => Promise<T>): Promise<T> => {
    const model = await dial(typeof brokerUrl === 'string' ? brokerUrl : brokerUrl(), { timeout: 5_000 });
    model.on('error', () => undefined);
    try {
      const channel = await model.createChannel();
      channel.on('error', () => undefined);
      return await work(channel);
    } finally {
      await model.close().catch(() => undefined);
    }
  };
  const bind = (): Promise<void> =>
    atBroker(async (channel) => {
      await channel.assertExchange(EVENTS_EXCHANGE, 'topic', { durable: true });
      await channel.assertQueue(queue, { durable: true, arguments: { 'x-queue-type': 'quorum' } });
      await channel.bindQueue(queue, EVENTS_EXCHANGE, 'order.placed');
    });
  await bind();

  const count = async (where: string): Promise<number> => {
    const { rows } = await pool.query<{ n: number }>(`SELECT count(*)::int AS n FROM outbox WHERE ${where}`);
    return rows[0]?.n ?? 0;
  };
  const pending = (): Promise<number> => count('published_at IS NULL AND parked_at IS NULL');
  const write = async (rows: number, bodyBytes = 2): Promise<void> => {
    await pool.query(
      `INSERT INTO outbox (type, body) SELECT 'order.placed', convert_to(repeat('x', $2), 'UTF8')
         FROM generate_series(1, $1)`,
      [rows, bodyBytes],
    );
  };
  const take = (): Promise<string[]> =>
    atBroker(async (channel) => {
      const ids: string[] = [];
      const { messageCount } = await channel.checkQueue(queue);
      await channel.consume(
        queue,
        (message) => {
          if (message !== null) ids.push(String(message.properties.messageId));
        },
        { noAck: true },
      );
      await until(`${messageCount} messages taken`, () => ids.length >= messageCount, { ms: 60_000 });
      // What the count did not show yet comes as well, or this finds nothing more.
      await until('the queue is empty', async () => (await channel.checkQueue(queue)).messageCount === 0);
      return ids;
    });

  return {
    pool,
    queue,
    atBroker,
    bind,
    pending,
    published: () => count('published_at IS NOT NULL'),
    write,
    take,
    start: (over = {}) => startType('relay', [], { ...env, RELAY_POLL_MS: '50', ...over }),
    underLoad: async (rows, work) => {
      const busy = Math.min(BUSY_ROWS, rows / 4);
      let over = false;
      const working = work().finally(() => {
        over = true;
      });
      working.catch(() => undefined);
      // A server that is away takes no rows: asked again. Rows whose answer was lost are there twice, as others.
      while (!over) {
        await until('rows are written', async () => over || write(busy).then(() => true), {
          ms: 60_000,
        });
        await until('the relay needs more', async () => over || (await pending()) < busy, {
          ms: 60_000,
        });
      }
      const result = await working;
      await write(Math.max(0, rows - (await count('true'))));
      return result;
    },
    account: async ({ copies, ms = 30_000, returned = false }) => {
      await until('every row is published', async () => (await pending()) === 0, { ms, everyMs: 400 });
      expect(await count('parked_at IS NOT NULL')).toBe(0);
      if (!returned) expect(await count('attempts > 0')).toBe(0);
      const { rows } = await pool.query<{ id: string }>('SELECT event_id::text AS id FROM outbox');
      const written = new Set(rows.map(({ id }) => id));
      const taken = await take();
      const distinct = new Set(taken);
      expect([...distinct].filter((id) => !written.has(id))).toEqual([]);
      expect(taken.length - distinct.size).toBeLessThanOrEqual(copies);
      return {
        copies: taken.length - distinct.size,
        missing: [...written].filter((id) => !distinct.has(id)),
      };
    },
    close: async () => {
      await atBroker((channel) => channel.deleteQueue(queue)).catch(() => undefined); // it may have been killed
      await pool.end();
    },
  };
}
