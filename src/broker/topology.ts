import type { Channel } from 'amqplib';

/** Where the relay publishes. It has no alternate exchange: one would hide what nobody is bound for. */
export const EVENTS_EXCHANGE = 'twinbox.events';
export const DEAD_LETTER_EXCHANGE = 'twinbox.dlx';

/**
 * Redeliveries before the broker gives a message up. Well above any number of restarts in a row; a broker's
 * own default of 20 throws away whatever stood in the window of a consumer that crashed 20 times.
 */
const DELIVERY_LIMIT = 50;
/** Looking at a dead-letter queue counts as a delivery; no number of looks may empty it. */
const DLQ_DELIVERY_LIMIT = 1_000_000;

/** The mailbox queue of an actor. */
export const mailboxQueue = (actor: string): string => `twinbox.${actor}`;
/** Where its dead letters end. */
export const deadLetterQueue = (actor: string): string => `twinbox.${actor}.dlq`;

/** The exchange alone: what a relay needs before the first actor is deployed. */
export async function declareExchange(channel: Channel): Promise<void> {
  await channel.assertExchange(EVENTS_EXCHANGE, 'topic', { durable: true });
}

/**
 * The mailbox of one actor and its dead-letter queue. Dead letters travel at least once, which needs
 * reject-publish; the dead-letter queue has no dead-letter target of its own.
 * @param subscribes routing-key patterns; undefined when the actor's file cannot be loaded: what is bound stays
 */
export async function declareMailbox(
  channel: Channel,
  actor: string,
  subscribes: readonly string[] | undefined,
): Promise<void> {
  await declareExchange(channel);
  await channel.assertExchange(DEAD_LETTER_EXCHANGE, 'direct', { durable: true });
  await channel.assertQueue(deadLetterQueue(actor), {
    durable: true,
    arguments: { 'x-queue-type': 'quorum', 'x-delivery-limit': DLQ_DELIVERY_LIMIT },
  });
  await channel.bindQueue(deadLetterQueue(actor), DEAD_LETTER_EXCHANGE, mailboxQueue(actor));
  await channel.assertQueue(mailboxQueue(actor), {
    durable: true,
    arguments: {
      'x-queue-type': 'quorum',
      'x-delivery-limit': DELIVERY_LIMIT,
      'x-dead-letter-exchange': DEAD_LETTER_EXCHANGE,
      'x-dead-letter-routing-key': mailboxQueue(actor),
      'x-dead-letter-strategy': 'at-least-once',
      'x-overflow': 'reject-publish',
    },
  });
  for (const pattern of subscribes ?? [])
    await channel.bindQueue(mailboxQueue(actor), EVENTS_EXCHANGE, pattern);
}
