import { createHash } from 'node:crypto';
import { decodedBody } from './encoding.js';
import {
  detectFormat,
  textOf,
  timestampMs,
  type Description,
  type FormatName,
  type Parts,
} from './formats/index.js';
import { readId } from './id.js';
import { jsonOf } from './payload.js';
import type { Refusal } from './refusal.js';

/** Our own AMQP headers, beside the standard properties. */
export const HEADER = {
  key: 'x-key',
  sequence: 'x-sequence',
  createdAtMs: 'x-created-at-ms',
  traceparent: 'traceparent',
  reason: 'x-reason',
  detail: 'x-detail',
  exchange: 'x-original-exchange',
  routingKey: 'x-original-routing-key',
  diedAtMs: 'x-died-at-ms',
  replayedFrom: 'x-replayed-from',
  replayCount: 'x-replay-count',
} as const;

/** What a delivery looks like, whatever client library brought it. */
export interface RawDelivery {
  readonly content: Buffer;
  readonly fields: { readonly exchange: string; readonly routingKey: string; readonly redelivered: boolean };
  readonly properties: Readonly<Record<string, unknown>>;
}

/** A message as the inbox keeps it. */
export interface Envelope {
  readonly messageId: string;
  /** sha256 of the raw body, hex: the same id with another hash is a conflict. */
  readonly bodyHash: string;
  readonly type: string;
  readonly key?: string;
  /** The outbox id: the place of this message among those of its key. */
  readonly sequence?: number;
  /** The raw bytes, as they were sent. */
  readonly body: Buffer;
  readonly contentType?: string;
  readonly contentEncoding?: string;
  readonly headers: Readonly<Record<string, string | number | boolean>>;
  readonly source: Source;
  /** When the business transaction wrote it, by the producer's clock, in milliseconds since 1970. */
  readonly createdAtMs?: number;
  readonly correlationId?: string;
  readonly traceparent?: string;
}

export interface Source {
  readonly exchange: string;
  readonly routingKey: string;
  /** How its producer writes messages. */
  readonly format: FormatName;
  /** Where the id was found: `props.messageId`, `body.source+id` …, or `hash`. */
  readonly idSource: string;
}

/** Several envelopes are those of one batch: they are acked together. */
export type Reading = { readonly envelopes: readonly Envelope[] } | { readonly refusal: Refusal };

export interface ReadingLimits {
  /** For the body as it was sent, and again once it is decoded. */
  readonly maxBodyBytes: number;
  /** What becomes of a message that its producer gave no id. */
  readonly withoutId: WithoutId;
}

/**
 * `hash`: sha256 of body, type and key is its id, so that two messages which are meant to be two, and are alike in all of
 * that, become one.
 */
export type WithoutId = 'dead-letter' | 'hash';

const MAX_TEXT_BYTES = 1_024;
const MAX_HEADERS = 64;
const MAX_HEADER_BYTES = 1_024;
/** Names that mean something to the store: an object with a `_bsontype` is taken for what that says, or cannot be stored. */
const UNKEPT_NAME = /^(\$|_bsontype$)/;
/** Written by the broker or by us on the way; they tell of the transport, not of the message. */
const TRANSPORT_HEADER =
  /^(x-death|x-first-death-|x-last-death-|x-delivery-count|x-acquired-count|x-key$|x-sequence$|x-created-at-ms$|x-original-|x-reason$|x-detail$|x-died-at-ms$|x-replayed-from$|x-replay-count$|traceparent$)/;

/** Reads a delivery: what can be named and stored becomes an envelope, whatever its bytes mean. Never throws. */
export function readDelivery(delivery: RawDelivery, limits: ReadingLimits): Reading {
  const { content, properties } = delivery;
  const { maxBodyBytes } = limits;
  if (content.length > maxBodyBytes) {
    return {
      refusal: {
        reason: 'too-large',
        detail: `the body has ${content.length} bytes, more than MAX_BODY_BYTES = ${maxBodyBytes}`,
      },
    };
  }
  const decoded = decodedBody(content, text(properties.contentEncoding), maxBodyBytes);
  if ('reason' in decoded) return { refusal: decoded };
  const parts = partsOf(delivery, decoded.body);
  const { format, why } = detectFormat(parts);
  const described = format.read(parts);
  if ('reason' in described) return { refusal: { ...described, detail: `${why}: ${described.detail}` } };
  const envelopes: Envelope[] = [];
  for (const description of described) {
    const draft = draftOf(delivery, parts, description);
    const id = readId(description.id);
    if ('messageId' in id) envelopes.push(sealed(draft, id.messageId, format.name, description.idSource));
    else if (id.reason === 'no-id' && limits.withoutId === 'hash')
      envelopes.push(sealed(draft, hashId(draft), format.name, 'hash'));
    else
      return { refusal: id.reason === 'no-id' ? { ...id, detail: `${id.detail}: ${format.withoutId}` } : id };
  }
  return { envelopes };
}

/** What the formats look at. */
export function partsOf({ properties }: Pick<RawDelivery, 'properties'>, decodedContent: Buffer): Parts {
  let json: ReturnType<Parts['json']> | undefined;
  return {
    properties,
    headers: ownHeaders(properties.headers),
    contentType: text(properties.contentType) ?? '',
    json: () => (json ??= jsonOf(decodedContent)),
  };
}

type Origin = Pick<Source, 'exchange' | 'routingKey'>;
type Draft = Omit<Envelope, 'messageId' | 'source'> & { readonly origin: Origin };

function draftOf({ content, fields, properties }: RawDelivery, { headers }: Parts, own: Description): Draft {
  const sequence = Number(headers.get(HEADER.sequence));
  const writtenMs = Number(headers.get(HEADER.createdAtMs));
  const body = own.body ?? content;
  const origin = originOf(fields, headers);
  return {
    origin,
    bodyHash: createHash('sha256').update(body).digest('hex'),
    type: bounded(own.type ?? text(properties.type) ?? origin.routingKey),
    body,
    headers: keptHeaders(headers),
    ...defined('key', boundedOrNone(textOf(headers.get(HEADER.key)) ?? own.key)),
    ...defined('sequence', Number.isSafeInteger(sequence) && sequence > 0 ? sequence : undefined),
    ...defined(
      'createdAtMs',
      Number.isFinite(writtenMs) && writtenMs > 0
        ? writtenMs
        : (own.createdAtMs ?? timestampMs(properties.timestamp)),
    ),
    ...defined('contentType', text(properties.contentType)),
    // A part of a batch was taken out of the decoded body.
    ...defined('contentEncoding', own.body === undefined ? text(properties.contentEncoding) : undefined),
    ...defined('correlationId', boundedOrNone(text(properties.correlationId) ?? own.correlationId)),
    ...defined('traceparent', traceparent(headers.get(HEADER.traceparent) ?? own.traceparent)),
  };
}

function sealed(
  { origin, ...draft }: Draft,
  messageId: string,
  format: FormatName,
  idSource: string,
): Envelope {
  return { ...draft, messageId, source: { ...origin, format, idSource } };
}

/** Where it was published first: what comes straight to the name of its mailbox (a replay) carries that along. */
function originOf(
  { exchange, routingKey }: RawDelivery['fields'],
  headers: ReadonlyMap<string, unknown>,
): Origin {
  const [first, key] = [headers.get(HEADER.exchange), headers.get(HEADER.routingKey)];
  const known = exchange === '' && typeof first === 'string' && typeof key === 'string';
  return known ? { exchange: first, routingKey: key } : { exchange, routingKey };
}

const hashId = ({ bodyHash, type, key }: Draft): string =>
  `sha256:${createHash('sha256')
    .update(JSON.stringify([bodyHash, type, key ?? null]))
    .digest('hex')}`;

/** Own properties alone: a header called `__proto__` or `constructor` is a header, and nothing else. */
function ownHeaders(table: unknown): Map<string, unknown> {
  return new Map(typeof table === 'object' && table !== null ? Object.entries(table) : []);
}

function keptHeaders(headers: ReadonlyMap<string, unknown>): Record<string, string | number | boolean> {
  const kept: Record<string, string | number | boolean> = Object.create(null) as Record<string, never>;
  for (const [name, value] of headers) {
    if (Object.keys(kept).length >= MAX_HEADERS) break;
    const plain =
      typeof value === 'string' ||
      typeof value === 'boolean' ||
      (typeof value === 'number' && Number.isFinite(value));
    if (!plain || name.includes('\0') || UNKEPT_NAME.test(name) || TRANSPORT_HEADER.test(name)) continue;
    if (Buffer.byteLength(name) + Buffer.byteLength(String(value)) <= MAX_HEADER_BYTES) kept[name] = value;
  }
  return kept;
}

/** A text of any length keeps its identity; what is stored of it is bounded. */
function bounded(value: string): string {
  if (Buffer.byteLength(value) <= MAX_TEXT_BYTES) return value;
  return `sha256:${createHash('sha256').update(value).digest('hex')}`;
}

const boundedOrNone = (value: string | undefined): string | undefined =>
  value === undefined ? undefined : bounded(value);

/** W3C Trace Context; anything else is no trace. */
function traceparent(value: unknown): string | undefined {
  return typeof value === 'string' && /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/.test(value)
    ? value
    : undefined;
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

function defined<K extends string, V>(name: K, value: V | undefined): { [P in K]?: V } {
  return (value === undefined ? {} : { [name]: value }) as { [P in K]?: V };
}
