import { createHash } from 'node:crypto';
import type { Options } from 'amqplib';
import { HEADER } from '../message/index.js';
import { decodedOf, undecodableOf } from './mend-headers.js';
import { sameAgain } from './move.js';
import type { Publication } from './publisher.js';
import { deadLetterQueue, mailboxQueue } from './topology.js';

/** A message as the client library brings it. */
export interface Brought {
  readonly content: Buffer;
  readonly fields: { readonly exchange: string; readonly routingKey: string };
  readonly properties: unknown;
}

/** A dead letter, read. */
export interface Letter {
  /** 12 hex digits that name it, also where it has no id. Copies of a message, whenever and of whatever they died, share it. */
  readonly letter: string;
  readonly id: string | undefined;
  readonly type: string;
  /** A code: Twinbox's own (`x-reason`), or the broker's: `delivery-limit`, `expired`, `maxlen`, `rejected`; or `unknown`. */
  readonly reason: string;
  readonly detail: string;
  /** Milliseconds since 1970, by the clock of ingest or of the broker (whole seconds then). */
  readonly diedAtMs: number | undefined;
  readonly replayCount: number;
  /** Where it was published first. */
  readonly origin: { readonly exchange: string; readonly routingKey: string };
  /** Without what could not be decoded. */
  readonly headers: Readonly<Record<string, unknown>>;
  /** The header table as bytes, where a client library cannot decode it. */
  readonly undecodable: Buffer | undefined;
  readonly properties: Options.Publish;
  readonly body: Buffer;
}

interface Death {
  readonly reason?: unknown;
  readonly queue?: unknown;
  readonly exchange?: unknown;
  readonly 'routing-keys'?: unknown;
  readonly time?: { readonly value?: unknown };
}

export function readLetter({ content, fields, properties: brought }: Brought, actor: string): Letter {
  const { headers: table, ...properties } = brought as Omit<Options.Publish, 'headers'> & {
    readonly headers?: Record<string, unknown>;
  };
  const headers = decodedOf(table);
  const deaths = deathsOf(headers);
  const origin = originOf(headers, deaths, fields);
  const own = typeof headers[HEADER.reason] === 'string';
  const reason = own ? (headers[HEADER.reason] as string) : brokersReason(headers, deaths);
  const type = textOf(properties.type) ?? origin.routingKey;
  const id = textOf(properties.messageId);
  return {
    letter: nameOf({ id, type, origin, headers, body: content }),
    id,
    type,
    reason,
    detail: own ? (textOf(headers[HEADER.detail]) ?? '') : detailOf(reason, actor),
    diedAtMs: diedAtOf(headers, deaths, own),
    replayCount: replaysOf(headers),
    origin,
    headers,
    undecodable: undecodableOf(table),
    properties,
    body: content,
  };
}

/** What the broker wrote down of each queue that the message died in, the latest first. */
function deathsOf(headers: Readonly<Record<string, unknown>>): Death[] {
  const list = headers['x-death'];
  return Array.isArray(list)
    ? list.filter((one): one is Death => typeof one === 'object' && one !== null)
    : [];
}

function brokersReason(headers: Readonly<Record<string, unknown>>, [latest]: readonly Death[]): string {
  const reason = textOf(latest?.reason) ?? textOf(headers['x-first-death-reason']);
  return reason?.replaceAll('_', '-') ?? 'unknown';
}

function detailOf(reason: string, actor: string): string {
  const mailbox = mailboxQueue(actor);
  switch (reason) {
    case 'delivery-limit':
      return `given back, or its consumer died over it, more often than the delivery limit of ${mailbox} allows`;
    case 'expired':
      return 'its time to live ran out before anybody took it';
    case 'maxlen':
      return 'the queue was full, and let it go';
    case 'rejected':
      return 'a consumer rejected it without saying why';
    default:
      return 'it says neither by x-reason nor by x-death why it is here: somebody published it to this queue';
  }
}

function diedAtOf(
  headers: Readonly<Record<string, unknown>>,
  [latest]: readonly Death[],
  own: boolean,
): number | undefined {
  const ms = headers[HEADER.diedAtMs];
  if (own) return typeof ms === 'number' && Number.isSafeInteger(ms) ? ms : undefined;
  const seconds = latest?.time?.value;
  return typeof seconds === 'number' ? seconds * 1_000 : undefined;
}

function replaysOf(headers: Readonly<Record<string, unknown>>): number {
  const count = headers[HEADER.replayCount];
  return typeof count === 'number' && Number.isSafeInteger(count) && count > 0 ? count : 0;
}

function originOf(
  headers: Readonly<Record<string, unknown>>,
  deaths: readonly Death[],
  fields: Brought['fields'],
): Letter['origin'] {
  const first = deaths.at(-1);
  const keys = first?.['routing-keys'];
  return {
    exchange: textOf(headers[HEADER.exchange]) ?? textOf(first?.exchange) ?? fields.exchange,
    routingKey:
      textOf(headers[HEADER.routingKey]) ??
      textOf(Array.isArray(keys) ? keys[0] : undefined) ??
      fields.routingKey,
  };
}

/** Of the way to the dead letters; a replayed message has not died yet, and no counter of that goes on. */
const OF_DYING =
  /^(x-death$|x-first-death-|x-last-death-|x-delivery-count$|x-acquired-count$|x-reason$|x-detail$|x-died-at-ms$|x-attempt$)/;
/** Of earlier replays: the same message has them and has them not. */
const OF_REPLAY = /^(x-original-|x-replayed-from$|x-replay-count$)/;

function nameOf({ id, type, origin, headers, body }: Omit<Parts, 'letter'>): string {
  const own = Object.entries(headers)
    .filter(([name]) => !OF_DYING.test(name) && !OF_REPLAY.test(name))
    .sort(([one], [other]) => (one < other ? -1 : 1));
  const hash = createHash('sha256').update(JSON.stringify([id ?? null, type, origin.routingKey, own]));
  return hash.update(body).digest('hex').slice(0, 12);
}
type Parts = Pick<Letter, 'letter' | 'id' | 'type' | 'origin' | 'headers' | 'body'>;

/**
 * The message of a letter, for its mailbox and no other: id, properties, headers and origin as they were, and a count of
 * the replays.
 */
export function replayOf(letter: Letter, actor: string, key: string): Publication {
  const { expiration: _expiration, ...properties } = letter.properties;
  const alive = Object.fromEntries(Object.entries(letter.headers).filter(([name]) => !OF_DYING.test(name)));
  const again = sameAgain({ fields: letter.origin, properties: { ...properties, headers: alive } }, '');
  return {
    exchange: '',
    routingKey: mailboxQueue(actor),
    body: letter.body,
    messageId: key,
    options: {
      ...again,
      // Named, also where there is none: it would be given the key in flight.
      ...({ messageId: properties.messageId } as { messageId: string }),
      headers: {
        ...(again.headers as Record<string, unknown>),
        [HEADER.replayedFrom]: deadLetterQueue(actor),
        [HEADER.replayCount]: letter.replayCount + 1,
      },
    },
  };
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}
