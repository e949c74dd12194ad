import { connect, type ConfirmChannel } from 'amqplib';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { Binary, MongoClient } from 'mongodb';
import { mailboxQueue } from '../../src/broker/index.js';
import { BODY } from '../stores.js';

/** Takes `messages` messages out of the mailbox, acked one by one or every `every`. @returns seconds */
export async function consumeAll(rabbitUrl: string, messages: number, every: number): Promise<number> {
  const model = await connect(rabbitUrl, { noDelay: true });
  try {
    const channel = await model.createChannel();
    await channel.prefetch(200);
    const began = performance.now();
    await new Promise<void>((resolve, reject) => {
      let taken = 0;
      channel.on('error', reject);
      void channel.consume(mailboxQueue('bench'), (message) => {
        if (message === null) return;
        taken += 1;
        if (taken % every === 0 || taken === messages) channel.ack(message, every > 1);
        if (taken === messages) resolve();
      });
    });
    return (performance.now() - began) / 1_000;
  } finally {
    await model.close();
  }
}

/** insertMany of 100 small documents, unordered, majority and journal, with an index on the id and one for the sweeper. @returns seconds */
export async function insertAll(mongoUri: string, messages: number, parallel: number): Promise<number> {
  const client = new MongoClient(mongoUri, { writeConcern: { w: 'majority', journal: true } });
  try {
    const documents = client.db('raw').collection('inbox');
    await documents.drop().catch(() => undefined);
    await documents.createIndex({ messageId: 1 }, { unique: true }, {});
    await documents.createIndex({ lookAt: 1 }, { partialFilterExpression: { processedAt: null } }, {});
    let next = 0;
    const began = performance.now();
    const work = async (): Promise<void> => {
      while (next < messages) {
        const first = next;
        next += 100;
        const batch = Array.from({ length: Math.min(100, messages - first) }, (_, index) => ({
          messageId: `raw-${first + index}`,
          body: new Binary(BODY),
          lookAt: new Date(),
        }));
        await documents.insertMany(batch, { ordered: false });
      }
    };
    await Promise.all(Array.from({ length: parallel }, work));
    return (performance.now() - began) / 1_000;
  } finally {
    await client.close();
  }
}

/** addBulk of 100 jobs. @returns seconds */
export async function addAll(redisUrl: string, messages: number, parallel: number): Promise<number> {
  const connection = new Redis(redisUrl, { maxRetriesPerRequest: null });
  const queue = new Queue('bench', { connection, prefix: 'raw' });
  try {
    await queue.waitUntilReady();
    let next = 0;
    const began = performance.now();
    const work = async (): Promise<void> => {
      while (next < messages) {
        const first = next;
        next += 100;
        await queue.addBulk(
          Array.from({ length: Math.min(100, messages - first) }, (_, index) => ({
            name: 'bench',
            data: { messageId: `raw-${first + index}` },
            opts: { jobId: `raw-${first + index}` },
          })),
        );
      }
    };
    await Promise.all(Array.from({ length: parallel }, work));
    return (performance.now() - began) / 1_000;
  } finally {
    await queue.obliterate({ force: true });
    await queue.close();
    connection.disconnect();
  }
}

/** Fills the mailbox, confirmed. @param idOf the message id of the n-th */
export async function fill(
  channel: ConfirmChannel,
  exchange: string,
  messages: number,
  idOf: (nth: number) => string,
): Promise<void> {
  const WINDOW = 500;
  for (let sent = 0; sent < messages; sent += 1) {
    channel.publish(exchange, 'bench.event', BODY, {
      messageId: idOf(sent),
      persistent: true,
      type: 'bench.event',
      contentType: 'application/json',
    });
    if (sent % WINDOW === WINDOW - 1) await channel.waitForConfirms();
  }
  await channel.waitForConfirms();
}
