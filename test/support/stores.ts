import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { MongoClient } from 'mongodb';
import pg from 'pg';

/** The environment of a Twinbox of its own: one database, virtual host, inbox and key prefix for one test file. */
export interface Stores {
  readonly env: StoreEnv;
  /** Removes everything; call it when the tests passed, or leave it to be looked at. */
  drop(): Promise<void>;
}

export interface StoreEnv extends NodeJS.ProcessEnv {
  readonly DATABASE_URL: string;
  readonly RABBITMQ_URL: string;
  readonly REDIS_URL: string;
  readonly REDIS_PREFIX: string;
  readonly MONGODB_URI: string;
}

export async function freshStores(): Promise<Stores> {
  const name = freshName();
  const database = await freshDatabase(name);
  await management('PUT', `vhosts/${name}`);
  const user = new URL(given('RABBITMQ_URL')).username;
  await management('PUT', `permissions/${name}/${user}`, { configure: '.*', write: '.*', read: '.*' });
  const env: StoreEnv = {
    ...process.env,
    DATABASE_URL: database.url,
    RABBITMQ_URL: withPath(given('RABBITMQ_URL'), name),
    REDIS_URL: given('REDIS_URL'),
    REDIS_PREFIX: name,
    MONGODB_URI: withPath(given('MONGODB_URI'), name),
  };
  return {
    env,
    drop: async () => {
      await Promise.all([
        database.drop(),
        management('DELETE', `vhosts/${name}`),
        dropInbox(env.MONGODB_URI),
        dropKeys(env.REDIS_URL, name),
      ]);
    },
  };
}

/** A database alone, for what speaks to Postgres and nothing else. */
export async function freshDatabase(
  name = freshName(),
): Promise<{ readonly url: string; drop(): Promise<void> }> {
  await postgres(`CREATE DATABASE ${name}`);
  return {
    url: withPath(given('DATABASE_URL'), name),
    drop: () => postgres(`DROP DATABASE ${name} WITH (FORCE)`),
  };
}

const freshName = (): string => `t${randomUUID().replaceAll('-', '').slice(0, 16)}`;

/** Asks the broker's management API. */
export async function management(method: string, path: string, body?: unknown): Promise<unknown> {
  const url = new URL(given('RABBITMQ_MANAGEMENT_URL'));
  const authorization = `Basic ${Buffer.from(`${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`).toString('base64')}`;
  const response = await fetch(`${url.origin}/api/${path}`, {
    method,
    headers: { authorization, 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  if (!response.ok && !(method === 'DELETE' && response.status === 404)) {
    throw new Error(`${method} /api/${path} answered ${response.status}: ${await response.text()}`);
  }
  const text = await response.text();
  return text === '' ? undefined : (JSON.parse(text) as unknown);
}

function given(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set: run the tests with bin/test`);
  return value;
}

function withPath(address: string, path: string): string {
  const url = new URL(address);
  url.pathname = `/${path}`;
  return url.href;
}

async function postgres(sql: string): Promise<void> {
  const client = new pg.Client({ connectionString: given('DATABASE_URL') });
  await client.connect();
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
}

async function dropInbox(uri: string): Promise<void> {
  const client = new MongoClient(uri);
  try {
    await client.db().dropDatabase();
  } finally {
    await client.close();
  }
}

async function dropKeys(url: string, prefix: string): Promise<void> {
  const redis = new Redis(url);
  try {
    for await (const keys of redis.scanStream({ match: `${prefix}:*`, count: 1_000 }) as AsyncIterable<
      string[]
    >) {
      if (keys.length > 0) await redis.unlink(...keys);
    }
  } finally {
    redis.disconnect();
  }
}
