import { existsSync } from 'node:fs';
import { connect, type Channel } from 'amqplib';
import pg from 'pg';
import { declareMailbox } from '../src/broker/index.js';
import { migrateOutbox } from '../src/outbox/index.js';
import { openStack, type ServiceName, type Stack, type StackUrls } from '../stack/index.js';
import { startOwned, type Owned } from './owned.js';

/** Private servers, and the process ids by which their CPU time is counted. */
export interface Bench {
  readonly urls: StackUrls;
  /** By service. */
  pids(): Promise<ReadonlyMap<ServiceName, readonly number[]>>;
  close(): Promise<void>;
}

export async function openServers(note: (line: string) => void): Promise<Bench> {
  // Never somebody's own servers, whatever the environment names.
  for (const name of ['DATABASE_URL', 'RABBITMQ_URL', 'RABBITMQ_MANAGEMENT_URL', 'REDIS_URL', 'MONGODB_URI'])
    Reflect.deleteProperty(process.env, name);
  const stack: Stack = openStack({ name: 'bench', attached: true, log: note });
  await stack.remove();
  const urls = await stack.start();
  return {
    urls,
    pids: async () => new Map((await stack.status()).map(({ service, pids }) => [service, pids])),
    close: () => stack.remove(),
  };
}

/** A database with an outbox of its own, and a relay on it. */
export interface Outbox {
  readonly env: NodeJS.ProcessEnv;
  readonly pool: pg.Pool;
  /** The compiled one, with the default settings, as the Procfile starts it. */
  startRelay(): Promise<Owned>;
  close(): Promise<void>;
}

/** @throws when the process types were never compiled */
export function compiled(type: string): string {
  const path = `dist/${type}/main.js`;
  if (!existsSync(path)) throw new Error(`${path} is not there: run npm run build first`);
  return path;
}

/** @throws when the relay was never compiled */
export async function openOutbox(bench: Bench, name: string): Promise<Outbox> {
  const relay = compiled('relay');
  const admin = new pg.Client({ connectionString: bench.urls.DATABASE_URL });
  await admin.connect();
  await admin.query(`CREATE DATABASE ${name}`);
  await admin.end();
  const url = new URL(bench.urls.DATABASE_URL);
  url.pathname = `/${name}`;
  await migrateOutbox(url.href);
  const pool = new pg.Pool({ connectionString: url.href, max: 2 });
  pool.on('error', () => undefined);
  const env = {
    PATH: process.env.PATH,
    DATABASE_URL: url.href,
    RABBITMQ_URL: bench.urls.RABBITMQ_URL,
    LOG_LEVEL: 'warn',
  };
  return {
    env,
    pool,
    startRelay: () => startOwned([relay], env),
    close: () => pool.end(),
  };
}

/** The mailbox of an actor that takes `bench.event`, as the product declares it; nobody consumes it. */
export async function openMailbox(
  bench: Bench,
): Promise<{ channel: Channel; empty(): Promise<number>; close(): Promise<void> }> {
  const model = await connect(bench.urls.RABBITMQ_URL);
  const channel = await model.createChannel();
  await declareMailbox(channel, 'bench', ['bench.event']);
  return {
    channel,
    empty: async () => (await channel.purgeQueue('twinbox.bench')).messageCount,
    close: () => model.close(),
  };
}

/** A JSON body of 1 KB. */
export const BODY = Buffer.from(JSON.stringify({ text: 'x'.repeat(1_024 - 11) }));
