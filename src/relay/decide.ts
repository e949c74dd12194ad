import type { Outcome, Publication } from '../broker/index.js';
import { EVENTS_EXCHANGE } from '../broker/index.js';
import { HEADER } from '../message/index.js';
import type { OutboxRow, RowFailure } from '../outbox/index.js';
import { backoffMs, type BackoffPolicy } from '../runtime/retry.js';

export interface RelayPolicy {
  readonly maxAttempts: number;
  readonly backoff: BackoffPolicy;
  readonly maxBodyBytes: number;
  /** A parked row holds the later rows of its key (RELAY_ON_PARKED=block). */
  readonly parkedBlocks: boolean;
}

/** What a row's outcome means for the row. */
export type Verdict =
  | { readonly kind: 'mark' }
  /** An attempt is used: wait, or park. */
  | { readonly kind: 'failure'; readonly failure: RowFailure }
  /** Nobody knows, or it is nobody's fault: the row stays as it is and is published again under the same id. */
  | { readonly kind: 'again' }
  /** The broker closed the channel over one row of this window: each goes alone until the guilty one is known. */
  | { readonly kind: 'suspect' };

/** Replies that blame the message and not the topology or the rights: precondition, syntax, frame, command. */
const BLAMES_A_MESSAGE = new Set([406, 501, 502]);
/** Headers by which a publisher makes the broker put copies elsewhere. */
const BROKER_HEADERS = ['CC', 'BCC'];

/** @param alone nothing else was in flight with it */
export function judge(
  row: OutboxRow,
  outcome: Outcome,
  alone: boolean,
  policy: RelayPolicy,
  random: number,
): Verdict {
  switch (outcome.kind) {
    case 'confirmed':
      return { kind: 'mark' };
    case 'returned':
      return retryOrPark(row, `NO_ROUTE ${outcome.detail}`, policy, random);
    case 'nacked':
      return retryOrPark(
        row,
        'the broker refused to store it (nack): a queue is full, or has no leader',
        policy,
        random,
      );
    case 'refused':
      return park(row, `cannot be sent: ${outcome.detail}`);
    case 'not-sent':
      return { kind: 'again' };
    case 'unknown':
      if (outcome.closedWith === undefined || !BLAMES_A_MESSAGE.has(outcome.closedWith))
        return { kind: 'again' };
      return alone
        ? park(row, `the broker closed the channel over it: ${outcome.detail}`)
        : { kind: 'suspect' };
  }
}

function retryOrPark(
  row: OutboxRow,
  error: string,
  { maxAttempts, backoff }: RelayPolicy,
  random: number,
): Verdict {
  const failures = row.attempts + 1;
  const retryInMs = failures >= maxAttempts ? null : backoffMs(failures, backoff, random);
  return { kind: 'failure', failure: { id: row.id, retryInMs, error: storable(error) } };
}

function park(row: OutboxRow, error: string): Verdict {
  return { kind: 'failure', failure: { id: row.id, retryInMs: null, error: storable(error) } };
}

/** Postgres takes no NUL in a text: an error that quotes one would itself be refused, for ever. */
function storable(error: string): string {
  return error.replaceAll('\0', '').slice(0, 1_000);
}

/** What a broker said of its own limit, when it closed the channel over a row that was above it. */
export interface BrokerLimit {
  readonly bytes: number;
  readonly said: string;
}

/** The broker's max_message_size, from its own words; it tells its limit to nobody otherwise. */
export function limitIn(said: string): BrokerLimit | undefined {
  const bytes = /larger than configured max size (\d+)/.exec(said)?.[1];
  return bytes === undefined ? undefined : { bytes: Number(bytes), said };
}

/**
 * Why a row is not sent at all, though the table took it; undefined when it can be.
 * @param limit learnt from an earlier row: each further one would cost two channels
 */
export function unsendable(
  row: OutboxRow,
  { maxBodyBytes }: Pick<RelayPolicy, 'maxBodyBytes'>,
  limit?: BrokerLimit,
): string | undefined {
  if (row.body.length > maxBodyBytes)
    return `the body has ${row.body.length} bytes, more than MAX_BODY_BYTES = ${maxBodyBytes}`;
  if (limit !== undefined && row.body.length > limit.bytes)
    return `the body has ${row.body.length} bytes, and of another row the broker said: ${limit.said}`;
  const forbidden = Object.keys(row.headers).filter((name) => BROKER_HEADERS.includes(name));
  if (forbidden.length > 0)
    return `the headers ${forbidden.join(', ')} have a meaning for the broker (PRECONDITION_FAILED or copies to others)`;
  return undefined;
}

/** Ours alone: a row that carries one of these would forge its place in an order. */
const OWN_HEADERS = new Set<string>([HEADER.key, HEADER.sequence, HEADER.createdAtMs]);

/** The AMQP message of a row. */
export function toPublication(row: OutboxRow): Publication {
  const headers: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(row.headers)) if (!OWN_HEADERS.has(name)) headers[name] = value;
  if (row.key !== null) headers[HEADER.key] = row.key;
  headers[HEADER.sequence] = Number(row.id);
  headers[HEADER.createdAtMs] = Math.floor(row.createdAtMs);
  return {
    exchange: EVENTS_EXCHANGE,
    routingKey: row.routingKey ?? row.type,
    body: row.body,
    messageId: row.eventId,
    options: {
      type: row.type,
      timestamp: Math.floor(row.createdAtMs / 1000), // AMQP counts seconds
      appId: 'twinbox',
      contentType: row.contentType,
      headers,
    },
  };
}
