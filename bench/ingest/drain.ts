import { connect, type ConfirmChannel } from 'amqplib';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { declareMailbox, EVENTS_EXCHANGE, mailboxQueue } from '../../src/broker/index.js';
import { migrateInbox, openInbox, type Inbox } from '../../src/inbox/index.js';
import { cpuSeconds, startMeter, type Cost } from '../cpu.js';
import { startOwned, type Owned } from '../owned.js';
import { percentile, round, sleep } from '../rounds.js';
import { compiled, type Bench } from '../stores.js';
import { fill } from './raw.js';

const RETENTION_SECONDS = 1_209_600;
const LOOK_MS = 20;

/** The mailbox, inbox and job queue of the actor `bench`, with nothing that runs its effect. */
export interface Path {
  readonly bench: Bench;
  readonly channel: ConfirmChannel;
  readonly inbox: Inbox;
  readonly jobs: Queue;
  readonly env: NodeJS.ProcessEnv;
  /** The compiled one, with the default settings, as the Procfile starts it. */
  startIngest(): Promise<Owned>;
  startStraightforward(): Promise<Owned>;
  /** Nothing recorded, no job, an empty mailbox. */
  empty(): Promise<void>;
  /** Jobs that wait and messages in the mailbox that nobody holds. */
  look(): Promise<{ waiting: number; ready: number }>;
  close(): Promise<void>;
}

export async function openPath(bench: Bench): Promise<Path> {
  const { RABBITMQ_URL, MONGODB_URI, REDIS_URL } = bench.urls;
  const model = await connect(RABBITMQ_URL);
  const channel = await model.createConfirmChannel();
  await declareMailbox(channel, 'bench', ['bench.event']);
  const inbox = openInbox(MONGODB_URI, 'bench');
  await migrateInbox(inbox, ['bench'], RETENTION_SECONDS);
  const connection = new Redis(REDIS_URL, { maxRetriesPerRequest: null });
  const jobs = new Queue('bench', { connection, prefix: 'twinbox' });
  const env = {
    PATH: process.env.PATH,
    RABBITMQ_URL,
    MONGODB_URI,
    REDIS_URL,
    REDIS_PREFIX: 'twinbox',
    TWINBOX_PROCESSORS: 'bench/ingest/actors.ts',
    LOG_LEVEL: 'warn',
  };
  return {
    bench,
    channel,
    inbox,
    jobs,
    env,
    startIngest: () => startOwned(['--import', 'tsx', compiled('ingest')], env),
    startStraightforward: () =>
      startOwned(['--import', 'tsx', 'bench/straightforward/ingest.ts'], {
        ...env,
        MONGODB_URI: inUrl(MONGODB_URI, inbox.db.databaseName),
      }),
    empty: async () => {
      await channel.purgeQueue(mailboxQueue('bench'));
      await jobs.obliterate({ force: true });
      await inbox.documents('bench').deleteMany({});
    },
    look: async () => ({
      waiting: await jobs.getWaitingCount(),
      ready: (await channel.checkQueue(mailboxQueue('bench'))).messageCount,
    }),
    close: async () => {
      await jobs.close();
      connection.disconnect();
      await inbox.close();
      await model.close();
    },
  };
}

function inUrl(uri: string, database: string): string {
  const url = new URL(uri);
  url.pathname = `/${database}`;
  return url.href;
}

export interface Drained {
  readonly rate: number;
  readonly cpu: Cost;
}

/**
 * A full mailbox, from the moment that the frozen process thaws until the last job is there. It ran before and was
 * frozen: what is measured is recording, not starting.
 * @param duplicates part of the messages that comes a second time, right behind the first
 * @throws when the inbox does not hold exactly the messages
 */
export async function drainRun(
  path: Path,
  process_: Owned,
  messages: number,
  duplicates = 0,
): Promise<Drained> {
  const { bench, channel, inbox } = path;
  await path.empty();
  process.kill(process_.pid, 'SIGSTOP');
  const every = duplicates === 0 ? Infinity : Math.round(1 / duplicates);
  const ids: string[] = [];
  for (let nth = 0; nth < messages; nth += 1)
    ids.push(nth % every === every - 1 ? (ids.at(-1) as string) : `bench-${performance.now()}-${nth}`);
  const distinct = new Set(ids).size;
  await fill(channel, EVENTS_EXCHANGE, messages, (nth) => ids[nth] as string);
  const cost = await startMeter(bench, () => cpuSeconds([process_.pid]));
  process.kill(process_.pid, 'SIGCONT');
  const began = performance.now();
  for (;;) {
    process_.check();
    const { waiting, ready } = await path.look();
    if (waiting >= distinct && ready === 0) break;
    await sleep(LOOK_MS);
  }
  const seconds = (performance.now() - began) / 1_000;
  const cpu = cost(messages);
  const recorded = await inbox.documents('bench').countDocuments({});
  if (recorded !== distinct) throw new Error(`the inbox holds ${recorded} messages of ${distinct}`);
  return { rate: round(messages / seconds, 0), cpu };
}

/**
 * Lone messages at an even pace: from publishing to the job that ingest makes right after its ack, by this host's
 * clock. The delivery and the ack lie within.
 */
export async function latencyAt(
  path: Path,
  perSecond: number,
  seconds: number,
): Promise<{ p50: number; p99: number; eventsPerSecond: number }> {
  await path.empty();
  const sentAt = new Map<string, number>();
  const began = performance.now();
  for (let sent = 0; sent < perSecond * seconds; sent += 1) {
    await sleep(began + (sent * 1_000) / perSecond - performance.now());
    const id = `lone-${sent}`;
    sentAt.set(id, Date.now());
    await fill(path.channel, EVENTS_EXCHANGE, 1, () => id);
  }
  await sleep(1_000);
  const jobs = (await path.jobs.getWaiting(0, -1)) as { data: { messageId: string }; timestamp: number }[];
  if (jobs.length !== sentAt.size) throw new Error(`${jobs.length} jobs of ${sentAt.size} messages`);
  const all = jobs.map(({ data, timestamp }) => timestamp - (sentAt.get(data.messageId) ?? NaN));
  return {
    p50: round(percentile(all, 0.5), 1),
    p99: round(percentile(all, 0.99), 1),
    eventsPerSecond: perSecond,
  };
}
