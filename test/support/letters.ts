import { connect, type ConfirmChannel, type Options } from 'amqplib';
import {
  deadLetterQueue,
  declareMailbox,
  DEAD_LETTER_EXCHANGE,
  mailboxQueue,
} from '../../src/broker/index.js';
import { management } from './stores.js';
import { drain, type Taken } from './topology.js';
import { until } from './until.js';

/** The dead letters of test actors on one virtual host. */
export interface Letters {
  readonly channel: ConfirmChannel;
  /** A mailbox with its dead-letter queue, empty, bound for `<actor>.*`. */
  mailbox(actor: string): Promise<void>;
  /** Publishes letters as ingest does; `options` may be made for each. */
  bury(
    actor: string,
    ids: readonly string[],
    options?: (id: string) => Options.Publish & { body?: Buffer },
  ): Promise<void>;
  /** Publishes to the mailbox by way of the events' exchange. */
  publish(actor: string, id: string, options?: Options.Publish): Promise<void>;
  /** Ready in the dead-letter queue. */
  ready(actor: string): Promise<number>;
  readyIs(actor: string, count: number): Promise<unknown>;
  /** Takes all letters: their order is that of the queue. */
  take(actor: string): Promise<Taken[]>;
  /** The same of the mailbox. */
  arrived(actor: string): Promise<Taken[]>;
  /** Puts a policy on a mailbox: of two limits the smaller one counts. */
  policy(actor: string, definition: Readonly<Record<string, number>>): Promise<void>;
  close(): Promise<void>;
}

export async function openLetters(url: string): Promise<Letters> {
  const model = await connect(url);
  model.on('error', () => undefined);
  const channel = await model.createConfirmChannel();
  const vhost = new URL(url).pathname.slice(1);
  const ready = async (actor: string): Promise<number> =>
    (await channel.checkQueue(deadLetterQueue(actor))).messageCount;
  return {
    channel,
    mailbox: async (actor) => {
      await declareMailbox(channel, actor, [`${actor}.*`]);
      await channel.purgeQueue(mailboxQueue(actor));
      await channel.purgeQueue(deadLetterQueue(actor));
    },
    bury: async (actor, ids, options = () => ({})) => {
      for (const [index, messageId] of ids.entries()) {
        const { body = Buffer.from('{}'), ...given } = options(messageId);
        channel.publish(DEAD_LETTER_EXCHANGE, mailboxQueue(actor), body, {
          messageId,
          type: `${actor}.done`,
          persistent: true,
          ...given,
        });
        if (index % 1_000 === 999) await channel.waitForConfirms();
      }
      await channel.waitForConfirms();
    },
    publish: async (actor, id, options = {}) => {
      channel.publish('twinbox.events', `${actor}.done`, Buffer.from('{}'), {
        messageId: id,
        persistent: true,
        ...options,
      });
      await channel.waitForConfirms();
    },
    ready,
    readyIs: (actor, count) =>
      until(`${count} letters of ${actor} are ready`, async () => (await ready(actor)) === count, {
        ms: 20_000,
      }),
    take: (actor) => drain(channel, deadLetterQueue(actor)),
    arrived: (actor) => drain(channel, mailboxQueue(actor)),
    policy: async (actor, definition) => {
      const name = mailboxQueue(actor);
      await management('PUT', `policies/${vhost}/${name}`, {
        pattern: `^${name}$`,
        definition,
        'apply-to': 'queues',
      });
      await until('the policy applies', async () => {
        const queue = (await management('GET', `queues/${vhost}/${name}`)) as { policy?: string };
        return queue.policy === name;
      });
    },
    close: () => model.close(),
  };
}

/** What ingest writes on a letter. */
export const refused = (reason: string, over: Record<string, unknown> = {}): Options.Publish => ({
  headers: {
    'x-reason': reason,
    'x-detail': `because of ${reason}`,
    'x-original-exchange': 'twinbox.events',
    'x-original-routing-key': 'a.done',
    'x-died-at-ms': Date.parse('2026-03-01T12:00:00.250Z'),
    ...over,
  },
});
