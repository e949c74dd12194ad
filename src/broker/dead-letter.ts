import type { Options } from 'amqplib';
import { HEADER, type RawDelivery } from '../message/index.js';
import type { Publication } from './publisher.js';
import { DEAD_LETTER_EXCHANGE, mailboxQueue } from './topology.js';

const MAX_DETAIL = 500;
/** What a letter says of itself, whatever its message brought along. */
const OWN = [
  HEADER.reason,
  HEADER.detail,
  HEADER.exchange,
  HEADER.routingKey,
  HEADER.diedAtMs,
  HEADER.replayedFrom,
  HEADER.replayCount,
] as const;
let letters = 0;

/**
 * The dead letter of a delivery: its bytes, id, properties and headers as they came, where it was published
 * first, and why it is here. (A nack could carry no reason.)
 */
export function deadLetterOf(
  delivery: RawDelivery,
  actor: string,
  reason: string,
  detail: string,
): Publication {
  const { fields } = delivery;
  // `expiration` would throw the letter away, and `userId` must be the publisher's own: both are left out.
  const { expiration: _expiration, userId: _userId, ...properties } = delivery.properties as Options.Publish;
  // As a header of the letter CC would put copies of it elsewhere: it is kept under a name without a meaning.
  const { CC: cc, ...given } = (properties.headers ?? {}) as Record<string, unknown>;
  letters += 1;
  return {
    exchange: DEAD_LETTER_EXCHANGE,
    routingKey: mailboxQueue(actor),
    body: delivery.content,
    messageId: `letter-${letters}`,
    options: {
      ...properties,
      headers: {
        ...given,
        ...(cc === undefined ? {} : { 'x-original-cc': cc }),
        [HEADER.reason]: reason,
        [HEADER.detail]: detail.slice(0, MAX_DETAIL),
        [HEADER.exchange]: given[HEADER.exchange] ?? fields.exchange,
        [HEADER.routingKey]: given[HEADER.routingKey] ?? fields.routingKey,
        [HEADER.diedAtMs]: Date.now(),
      },
    },
  };
}

/** The same letter with no header but its reason and origin, for headers that cannot be encoded again. */
export function withoutForeignHeaders({ options, ...rest }: Publication): Publication {
  const kept = Object.fromEntries(
    OWN.map((name) => [name, (options.headers as Record<string, unknown>)[name]]).filter(
      ([, value]) => typeof value === 'string' || typeof value === 'number',
    ),
  ) as Record<string, string | number>;
  const detail = `${String(kept[HEADER.detail])} (its own headers could not be encoded again and are left out)`;
  return { ...rest, options: { ...options, headers: { ...kept, [HEADER.detail]: detail } } };
}
