import { parseArgs } from 'node:util';
import { openCatalog } from '../actor/index.js';
import {
  brokerAccess,
  deadLetterQueue,
  mailboxQueue,
  readDepths,
  readPublisherState,
  UNROUTED,
  type BrokerSource,
  type QueueDepth,
} from '../broker/index.js';
import { countMessages, openInbox } from '../inbox/index.js';
import {
  openBareSession,
  readBacklog,
  readSlotOwners,
  type Backlog,
  type SlotOwner,
} from '../outbox/index.js';
import { readConfig } from '../runtime/config.js';
import { ConfigurationError, describe } from '../runtime/errors.js';
import { bounded } from '../runtime/loop.js';
import { usageOf, withUsage, type CommandContext } from './command.js';
import { reportStatus, type Reading, type StatusReadings } from './status-report.js';
import { plain } from './table.js';

/** What each store has. */
const STORE_MS = 2_000;

const USAGE = `twinbox status [--json]

One line for each hop: outbox, relays, broker, and mailbox, dead letters and inbox of every actor. The first line says in
words whether somebody is needed. A store that does not answer within ${STORE_MS / 1_000} s is told; the others are shown.
Exit code: 0 all is well · 1 somebody is needed · 2 usage · 78 configuration.
`;

/** `twinbox status`. @returns the exit code */
export function status(context: CommandContext): Promise<number> {
  return withUsage(USAGE, context, () => run(context));
}

async function run({ argv, env, stdout }: CommandContext): Promise<number> {
  const { values } = usageOf(() =>
    parseArgs({ args: [...argv], options: { json: { type: 'boolean', default: false } } }),
  );
  const config = readConfig(env, ['DATABASE_URL', 'RABBITMQ_URL', 'MONGODB_URI'], {
    process: 'twinbox status',
  });
  const actors = (await openCatalog(config.TWINBOX_PROCESSORS)).map(({ name }) => name);
  const broker = brokerAccess(env, 'twinbox status');
  const readings = await readAll({ ...config, broker }, actors);
  const { problems, lines } = reportStatus(readings);
  const says = problems.length === 0 ? 'all is well' : `somebody is needed: ${problems.join('; ')}`;
  if (values.json)
    stdout.write(`${JSON.stringify({ ok: problems.length === 0, says, problems, ...readings })}\n`);
  else {
    const width = Math.max(...lines.map(([hop]) => hop.length));
    stdout.write(`${plain(says)}\n\n`);
    for (const [hop, text] of lines) stdout.write(`${hop.padEnd(width)}  ${plain(text)}\n`);
  }
  return problems.length === 0 ? 0 : 1;
}

interface Addresses {
  readonly DATABASE_URL: string;
  readonly MONGODB_URI: string;
  readonly broker: BrokerSource;
}

/** Asks all stores at once. Never throws: what gives no answer in its time is a fault in its place. */
export async function readAll(addresses: Addresses, actors: readonly string[]): Promise<StatusReadings> {
  const [postgres, broker, depths, inboxes] = await Promise.all([
    ask('Postgres', readOutbox(addresses.DATABASE_URL)),
    ask('RabbitMQ', readPublisherState(addresses.broker, 'twinbox status', STORE_MS)),
    ask('RabbitMQ', readQueues(addresses.broker, actors)),
    readInboxes(addresses.MONGODB_URI, actors),
  ]);
  const depth = (queue: string): Reading<QueueDepth> =>
    'fault' in depths ? depths : { value: depths.value.get(queue) ?? { fault: 'missing' } };
  return {
    outbox: 'fault' in postgres ? postgres : { value: postgres.value.backlog },
    slots: 'fault' in postgres ? postgres : { value: postgres.value.owners },
    broker,
    unrouted: depth(UNROUTED),
    actors: actors.map((name, index) => ({
      name,
      mailbox: depth(mailboxQueue(name)),
      dlq: depth(deadLetterQueue(name)),
      inbox: inboxes[index] ?? { fault: 'MongoDB was not asked' },
    })),
  };
}

async function ask<T>(store: string, answer: Promise<T>): Promise<Reading<T>> {
  try {
    return { value: await bounded('the answer', STORE_MS, answer) };
  } catch (error) {
    if (error instanceof ConfigurationError) return { fault: `${store}: ${error.message}` };
    return { fault: `${store} gives no answer (${describe(error, 200)})` };
  }
}

async function readOutbox(url: string): Promise<{ backlog: Backlog; owners: SlotOwner[] }> {
  const session = await openBareSession(url, 'status', STORE_MS);
  try {
    return { owners: await readSlotOwners(session.client), backlog: await readBacklog(session.client) };
  } finally {
    void session.close();
  }
}

function readQueues(source: BrokerSource, actors: readonly string[]): ReturnType<typeof readDepths> {
  const queues = [UNROUTED, ...actors.flatMap((actor) => [mailboxQueue(actor), deadLetterQueue(actor)])];
  return readDepths(source, 'twinbox status', queues, STORE_MS);
}

async function readInboxes(
  uri: string,
  actors: readonly string[],
): Promise<StatusReadings['actors'][number]['inbox'][]> {
  const inbox = openInbox(uri, 'twinbox status');
  try {
    return await Promise.all(actors.map((actor) => ask('MongoDB', countMessages(inbox, actor))));
  } finally {
    await bounded('close', 500, inbox.close()).catch(() => undefined);
  }
}
