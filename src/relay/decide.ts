import type { Outcome, Publication } from '../broker/index.js';
import { EVENTS_EXCHANGE } from '../broker/index.js';
import { HEADER } from '../message/index.js';
import type { OutboxRow, RowFailure } from '../outbox/index.js';
import { backoffMs, type BackoffPolicy } from '../runtime/retry.js';

export interface RelayPolicy {
  readonly maxAttempts: number;
  readonly backoff: BackoffPolicy;
  readonly maxBodyBytes: number;
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
  return { kind: 'failure', failure: { id: row.id, retryInMs, error } };
}

function park(row: OutboxRow, error: string): Verdict {
  return { kind: 'failure', failure: { id: row.id, retryInMs: null, error } };
}

/** Why a row is not sent at all, though the table took it; undefined when it can be. */
export function unsendable(row: OutboxRow, { maxBodyBytes }: RelayPolicy): string | undefined {
  if (row.body.length > maxBodyBytes)
    return `the body has ${row.body.length} bytes, more than MAX_BODY_BYTES = ${maxBodyBytes}`;
  const forbidden = Object.keys(row.headers).filter((name) => BROKER_HEADERS.includes(name));
  if (forbidden.length > 0)
    return `the headers ${forbidden.join(', ')} have a meaning for the broker (PRECONDITION_FAILED or copies to others)`;
  return undefined;
}

/** The AMQP message of a row. */
export function toPublication(row: OutboxRow): Publication {
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
      headers: {
        ...row.headers,
        ...(row.key === null ? {} : { [HEADER.key]: row.key }),
        [HEADER.sequence]: Number(row.id),
        [HEADER.createdAtMs]: Math.floor(row.createdAtMs),
      },
    },
  };
}
