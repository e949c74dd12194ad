import { connect, type ConfirmChannel, type Options } from 'amqplib';
import { MongoClient, type Collection } from 'mongodb';
import { createServer, type AddressInfo } from 'node:net';
import { deadLetterQueue, declareMailbox, EVENTS_EXCHANGE, mailboxQueue } from '../../../src/broker/index.js';
import { migrateInbox, openInbox, record, type Inbox, type InboxDocument } from '../../../src/inbox/index.js';
import { openQueues, type Queues } from '../../../src/queue/index.js';
import { createLog } from '../../../src/runtime/log.js';
import { startProcess, type Running } from '../processes.js';
import { freshStores, type StoreEnv } from '../stores.js';
import { until } from '../until.js';
import { envelope, GOOD_BODY } from './envelopes.js';
import type { Plan, RunRecord } from './runs.js';

export const ACTORS = ['receipt', 'ledger', 'fragile'] as const;
export const LOG = createLog({ level: 'silent', process: 'test' });

export interface Letter {
  readonly messageId: unknown;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: Buffer;
}

/** The right half of the path for one test file: its own stores, the test actors, and the means to look. */
export interface Bench {
  readonly env: StoreEnv;
  readonly inbox: Inbox;
  readonly queues: Queues;
  readonly documents: Collection<InboxDocument>;
  /** `ingest`, `sweeper`, or an actor. */
  start(type: string, over?: NodeJS.ProcessEnv): Running;
  /** The same, which kills itself with -9 at the probe point. */
  startProbed(type: string, killAt: string, over?: NodeJS.ProcessEnv): Running;
  plan(messageId: string, ...plans: string[]): Promise<void>;
  release(messageId: string): Promise<void>;
  runs(messageId: string, actor?: string): Promise<RunRecord[]>;
  document(messageId: string, actor?: string): Promise<InboxDocument | null>;
  processed(messageId: string, ms?: number): Promise<InboxDocument>;
  /** Records the message and adds its job, as ingest does. */
  accept(messageId: string, body?: object | Buffer, attempts?: number): Promise<void>;
  /** Publishes to the events' exchange, confirmed. */
  publish(messageId: string | undefined, body?: Buffer | object, options?: Options.Publish): Promise<void>;
  /** Many good ones at once. */
  publishMany(messageIds: readonly string[]): Promise<void>;
  letters(actor?: string): Promise<Letter[]>;
  /** Messages in the mailbox, ready and unacked together, as the broker says at once. */
  mailbox(actor?: string): Promise<{ ready: number; consumers: number }>;
  /** Empties mailboxes and dead-letter queues, so that a test that failed spoils no other. */
  purge(): Promise<void>;
  close(): Promise<void>;
}

export async function openBench(): Promise<Bench> {
  const stores = await freshStores();
  const env: StoreEnv = {
    ...stores.env,
    TWINBOX_PROCESSORS: 'test/support/actors/index.ts',
    // Times scaled down alike.
    LEASE_MS: '1500',
    SWEEP_INTERVAL_MS: '200',
    SWEEP_MIN_AGE_MS: '600',
    SHUTDOWN_TIMEOUT_MS: '10000',
  };
  const inbox = openInbox(env.MONGODB_URI, 'test');
  await migrateInbox(inbox, ACTORS, 1_209_600);
  const queues = openQueues({
    url: env.REDIS_URL,
    prefix: env.REDIS_PREFIX,
    actors: ACTORS,
    maxWaiting: 100_000,
    log: LOG,
  });
  await until('the queues reach Redis', () => queues.fault() === undefined);
  const mongo = new MongoClient(env.MONGODB_URI);
  const plans = mongo.db().collection<Plan>('test_plans');
  const runs = mongo.db().collection<RunRecord>('test_runs');
  const model = await connect(env.RABBITMQ_URL);
  model.on('error', () => undefined);
  let channel: ConfirmChannel | undefined;
  const broker = async (): Promise<ConfirmChannel> => {
    if (channel === undefined) {
      channel = await model.createConfirmChannel();
      channel.on('error', () => undefined).on('close', () => (channel = undefined));
    }
    return channel;
  };
  // Bound before the first event, as after any earlier start of ingest.
  await declareMailbox(await broker(), 'receipt', ['order.placed']);
  await declareMailbox(await broker(), 'ledger', ['order.placed']);
  await declareMailbox(await broker(), 'fragile', ['order.fragile']);
  const document = (messageId: string, actor = 'receipt') => inbox.documents(actor).findOne({ messageId });
  const start = (args: readonly string[], over: NodeJS.ProcessEnv): Running =>
    startProcess(process.execPath, ['--import', 'tsx', ...args], { ...env, ...over });

  return {
    env,
    inbox,
    queues,
    documents: inbox.documents('receipt'),
    start: (type, over = {}) =>
      start(
        type === 'ingest' || type === 'sweeper' ? [`src/${type}/main.ts`] : ['src/runner/main.ts', type],
        over,
      ),
    startProbed: (type, killAt, over = {}) => start(['test/support/actors/probed.ts', type, killAt], over),
    plan: async (messageId, ...list) => {
      await plans.updateOne({ _id: messageId }, { $set: { plans: list } }, { upsert: true });
    },
    release: async (messageId) => {
      await plans.updateOne({ _id: messageId }, { $set: { released: true } }, { upsert: true });
    },
    runs: (messageId, actor = 'receipt') => runs.find({ actor, messageId }).sort({ nth: 1 }).toArray(),
    document,
    processed: (messageId, ms = 20_000) =>
      until(
        `${messageId} is processed`,
        async () => {
          const found = await document(messageId);
          return found?.processedAt instanceof Date && found;
        },
        { ms },
      ),
    accept: async (messageId, body, attempts = 2) => {
      await record(inbox, 'receipt', [envelope(messageId, body)], Number(env.SWEEP_MIN_AGE_MS));
      await queues.add('receipt', { messageId, generation: 1, attemptsLeft: attempts });
    },
    publish: async (messageId, body = GOOD_BODY, options = {}) => {
      const open = await broker();
      open.publish(
        EVENTS_EXCHANGE,
        options.type ?? 'order.placed',
        Buffer.isBuffer(body) ? body : Buffer.from(JSON.stringify(body)),
        {
          persistent: true,
          type: 'order.placed',
          ...(messageId === undefined ? {} : { messageId }),
          ...options,
        },
      );
      await open.waitForConfirms();
    },
    publishMany: async (messageIds) => {
      const open = await broker();
      const body = Buffer.from(JSON.stringify(GOOD_BODY));
      for (const [index, messageId] of messageIds.entries()) {
        open.publish(EVENTS_EXCHANGE, 'order.placed', body, {
          persistent: true,
          type: 'order.placed',
          messageId,
        });
        if (index % 500 === 499) await open.waitForConfirms();
      }
      await open.waitForConfirms();
    },
    letters: async (actor = 'receipt') => {
      const open = await broker();
      const found: Letter[] = [];
      for (;;) {
        const letter = await open.get(deadLetterQueue(actor), { noAck: true });
        if (letter === false) return found;
        const { messageId, headers } = letter.properties as {
          messageId?: unknown;
          headers?: Letter['headers'];
        };
        found.push({ messageId, headers: headers ?? {}, body: letter.content });
      }
    },
    mailbox: async (actor = 'receipt') => {
      const { messageCount, consumerCount } = await (await broker()).checkQueue(mailboxQueue(actor));
      return { ready: messageCount, consumers: consumerCount };
    },
    purge: async () => {
      const open = await broker();
      for (const actor of ACTORS) {
        await open.purgeQueue(mailboxQueue(actor));
        await open.purgeQueue(deadLetterQueue(actor));
      }
    },
    close: async () => {
      await model.close();
      await inbox.close();
      await queues.close();
      await mongo.close();
      await stores.drop();
    },
  };
}

/** A port of loopback that nobody listens on. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** An address of the same server by way of another port. */
export function through(address: string, port: number): string {
  const url = new URL(address);
  url.port = String(port);
  if (url.protocol === 'mongodb:') {
    // A client that discovers the replica set would go round the proxy.
    url.searchParams.delete('replicaSet');
    url.searchParams.set('directConnection', 'true');
  }
  return url.href;
}
