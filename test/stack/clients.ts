import { connect } from 'amqplib';
import { Redis } from 'ioredis';
import { MongoClient } from 'mongodb';
import pg from 'pg';
import type { ServiceName, StackUrls } from '../../stack/index.js';

/** What a test does with one server, each time on a fresh connection. */
export type Client = {
  /** Leaves a durable value, in the way that the server keeps durable things. */
  write(urls: StackUrls, value: string): Promise<unknown>;
  /** The value that `write` left. */
  read(urls: StackUrls): Promise<string | undefined>;
};

const inPostgres = async <T>(urls: StackUrls, work: (client: pg.Client) => Promise<T>): Promise<T> => {
  const client = new pg.Client({ connectionString: urls.DATABASE_URL, query_timeout: 5_000 });
  client.on('error', () => undefined);
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
};

const inRedis = async <T>(urls: StackUrls, work: (client: Redis) => Promise<T>): Promise<T> => {
  const client = new Redis(urls.REDIS_URL, { lazyConnect: true, retryStrategy: () => null });
  client.on('error', () => undefined);
  await client.connect();
  try {
    return await work(client);
  } finally {
    client.disconnect();
  }
};

const inMongo = async <T>(urls: StackUrls, work: (client: MongoClient) => Promise<T>): Promise<T> => {
  const client = new MongoClient(urls.MONGODB_URI, { serverSelectionTimeoutMS: 5_000 });
  try {
    return await work(client);
  } finally {
    await client.close();
  }
};

type Connection = Awaited<ReturnType<typeof connect>>;
const inRabbit = async <T>(urls: StackUrls, work: (connection: Connection) => Promise<T>): Promise<T> => {
  const connection = await connect(urls.RABBITMQ_URL, { timeout: 5_000 });
  connection.on('error', () => undefined);
  try {
    return await work(connection);
  } finally {
    await connection.close();
  }
};

const QUEUE = { durable: true, arguments: { 'x-queue-type': 'quorum' } };

export const CLIENTS: Record<ServiceName, Client> = {
  postgres: {
    write: (urls, value) =>
      inPostgres(urls, async (client) => {
        await client.query('CREATE TABLE IF NOT EXISTS mark (value text)');
        await client.query('TRUNCATE mark');
        await client.query('INSERT INTO mark VALUES ($1)', [value]);
      }),
    read: (urls) =>
      inPostgres(urls, async (client) => {
        const { rows } = await client.query<{ value: string }>('SELECT value FROM mark');
        return rows[0]?.value;
      }),
  },

  redis: {
    write: (urls, value) => inRedis(urls, (client) => client.set('mark', value)),
    read: (urls) => inRedis(urls, async (client) => (await client.get('mark')) ?? undefined),
  },

  mongodb: {
    write: (urls, value) =>
      inMongo(urls, async (client) => {
        const marks = client.db().collection('mark', { writeConcern: { w: 'majority', journal: true } });
        await marks.deleteMany({});
        await marks.insertOne({ value });
      }),
    read: (urls) =>
      inMongo(urls, async (client) => {
        const found = await client.db().collection<{ value: string }>('mark').findOne();
        return found?.value;
      }),
  },

  rabbitmq: {
    write: (urls, value) =>
      inRabbit(urls, async (connection) => {
        const channel = await connection.createConfirmChannel();
        await channel.assertQueue('mark', QUEUE);
        await channel.purgeQueue('mark');
        channel.sendToQueue('mark', Buffer.from(value), { persistent: true });
        await channel.waitForConfirms();
      }),
    read: (urls) =>
      inRabbit(urls, async (connection) => {
        const channel = await connection.createChannel();
        // Not acknowledged: it goes back when the connection closes.
        const message = await channel.get('mark', { noAck: false });
        return message === false ? undefined : message.content.toString();
      }),
  },
};
