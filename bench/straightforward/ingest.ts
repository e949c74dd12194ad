import { connect } from 'amqplib';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { Binary, MongoClient } from 'mongodb';

// What a good engineer writes in an afternoon: prefetch 50, and for each message an insert, an ack, a job.
const { RABBITMQ_URL = '', MONGODB_URI = '', REDIS_URL = '', REDIS_PREFIX } = process.env;
const mongo = new MongoClient(MONGODB_URI, { writeConcern: { w: 'majority', journal: true } });
const inbox = mongo.db().collection('inbox_bench');
const queue = new Queue('bench', {
  connection: new Redis(REDIS_URL, { maxRetriesPerRequest: null }),
  prefix: REDIS_PREFIX ?? 'bull',
});
const channel = await (await connect(RABBITMQ_URL)).createChannel();
await channel.prefetch(50);
await channel.consume('twinbox.bench', (message) => {
  if (message === null) throw new Error('the consumer was cancelled');
  void (async () => {
    const messageId = message.properties.messageId as string;
    try {
      await inbox.insertOne({ messageId, body: new Binary(message.content), receivedAt: new Date() });
    } catch (error) {
      if ((error as { code?: unknown }).code !== 11_000) throw error;
    }
    channel.ack(message);
    await queue.add('bench', { messageId }, { jobId: messageId });
  })();
});
