import { createHash } from 'node:crypto';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { openInbox, record } from '../../src/inbox/index.js';
import type { Envelope } from '../../src/message/index.js';
import { openQueues } from '../../src/queue/index.js';
import { createLog } from '../../src/runtime/log.js';
import { startProcess } from '../support/processes.js';
import type { StoreEnv } from '../support/stores.js';
import { until } from '../support/until.js';

export async function migrate(env: StoreEnv): Promise<void> {
  const migration = startProcess(process.execPath, ['dist/cli/main.js', 'migrate'], env);
  const exit = await migration.ended;
  if (exit !== 0) throw new Error(`migrate ended with ${exit}: ${migration.text.join('\n')}`);
}

/** Messages that are recorded in the inbox of `stats` and wait as jobs, as ingest leaves them. */
export async function seedWaiting(env: StoreEnv, messageIds: readonly string[]): Promise<void> {
  const log = createLog({ level: 'silent', process: 'test' });
  const inbox = openInbox(env.MONGODB_URI, 'seed');
  const queues = openQueues({
    url: env.REDIS_URL,
    prefix: env.REDIS_PREFIX,
    actors: ['stats'],
    maxWaiting: 10_000,
    log,
  });
  try {
    await inbox.ping();
    await until('Redis is attached', () => queues.fault() === undefined);
    const recorded = await record(inbox, 'stats', messageIds.map(envelope), 1_000);
    const stored = recorded.filter(({ kind }) => kind === 'stored').length;
    if (stored !== messageIds.length) throw new Error(`${stored} of ${messageIds.length} were stored`);
    for (const messageId of messageIds) {
      await queues.add('stats', { messageId, generation: 1, attemptsLeft: 8 });
    }
  } finally {
    await inbox.close();
    await queues.close();
  }
}

function envelope(messageId: string): Envelope {
  const body = Buffer.from(JSON.stringify({ event: 'issues', repository: 'octo/hello' }));
  return {
    messageId,
    bodyHash: createHash('sha256').update(body).digest('hex'),
    type: 'github.issues.opened',
    body,
    contentType: 'application/json',
    headers: {},
    source: {
      exchange: 'twinbox',
      routingKey: 'github.issues.opened',
      format: 'plain',
      idSource: 'props.messageId',
    },
  };
}

/** The queue of `stats` as a script of the operator's would open it. */
export function openStatsQueue(env: StoreEnv): { queue: Queue; close(): Promise<void> } {
  const connection = new Redis(env.REDIS_URL, { maxRetriesPerRequest: null });
  const queue = new Queue('stats', { connection, prefix: env.REDIS_PREFIX });
  return {
    queue,
    close: async () => {
      await queue.close();
      connection.disconnect();
    },
  };
}
