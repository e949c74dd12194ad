import { createHash } from 'node:crypto';
import { decodedBody } from './encoding.js';
import type { Refusal, RefusalReason } from './refusal.js';

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
  readonly format: 'amqp';
  readonly idSource: 'message_id';
}

export type Reading = { readonly envelope: Envelope } | { readonly refusal: Refusal };

const MAX_ID_BYTES = 512;
const MAX_KEY_BYTES = 1_024;
const MAX_HEADERS = 64;
const MAX_HEADER_BYTES = 1_024;
/** Written by the broker or by us on the way; they tell of the transport, not of the message. */
const TRANSPORT_HEADER =
  /^(x-death|x-first-death-|x-last-death-|x-delivery-count|x-acquired-count|x-key$|x-sequence$|x-created-at-ms$|x-original-|x-reason$|x-detail$|traceparent$)/;

/**
 * Reads a delivery: what can be named and stored becomes an envelope, whatever its bytes mean.
 * @param maxBodyBytes for the body as it was sent, and again once it is decoded
 */
export function readDelivery(delivery: RawDelivery, maxBodyBytes: number): Reading {
  const { content, fields, properties } = delivery;
  const id = readId(properties.messageId);
  if ('reason' in id) return { refusal: id };
  const contentEncoding = text(properties.contentEncoding);
  if (content.length > maxBodyBytes) {
    return refuse(
      'too-large',
      `the body has ${content.length} bytes, more than MAX_BODY_BYTES = ${maxBodyBytes}`,
    );
  }
  const decoded = decodedBody(content, contentEncoding, maxBodyBytes);
  if ('reason' in decoded) return { refusal: decoded };
  const headers = ownHeaders(properties.headers);
  const sequence = Number(headers.get(HEADER.sequence));
  const createdAtMs = Number(headers.get(HEADER.createdAtMs));
  return {
    envelope: {
      messageId: id.messageId,
      bodyHash: createHash('sha256').update(content).digest('hex'),
      type: text(properties.type) ?? fields.routingKey,
      body: content,
      headers: keptHeaders(headers),
      source: {
        exchange: fields.exchange,
        routingKey: fields.routingKey,
        format: 'amqp',
        idSource: 'message_id',
      },
      ...defined('key', boundedKey(text(headers.get(HEADER.key)))),
      ...defined('sequence', Number.isSafeInteger(sequence) && sequence > 0 ? sequence : undefined),
      ...defined('createdAtMs', Number.isFinite(createdAtMs) && createdAtMs > 0 ? createdAtMs : undefined),
      ...defined('contentType', text(properties.contentType)),
      ...defined('contentEncoding', contentEncoding),
      ...defined('correlationId', text(properties.correlationId)),
      ...defined('traceparent', traceparent(headers.get(HEADER.traceparent))),
    },
  };
}

function readId(value: unknown): { messageId: string } | Refusal {
  if (typeof value !== 'string' || value.trim() === '') {
    return {
      reason: 'no-id',
      detail: 'message_id is missing or blank: without a stable id a second delivery cannot be recognised',
    };
  }
  // The client library turns bytes that are not UTF-8 into U+FFFD: two such ids could fall together.
  if (value.includes('\uFFFD')) return { reason: 'bad-id', detail: 'message_id is not UTF-8' };
  const bytes = Buffer.byteLength(value);
  if (bytes > MAX_ID_BYTES)
    return { reason: 'bad-id', detail: `message_id has ${bytes} bytes, more than ${MAX_ID_BYTES}` };
  return { messageId: value };
}

function refuse(reason: RefusalReason, detail: string): { refusal: Refusal } {
  return { refusal: { reason, detail } };
}

/** Own properties alone: a header called `__proto__` or `constructor` is a header, and nothing else. */
function ownHeaders(table: unknown): Map<string, unknown> {
  return new Map(typeof table === 'object' && table !== null ? Object.entries(table) : []);
}

function keptHeaders(headers: Map<string, unknown>): Record<string, string | number | boolean> {
  const kept: Record<string, string | number | boolean> = Object.create(null) as Record<string, never>;
  for (const [name, value] of headers) {
    if (Object.keys(kept).length >= MAX_HEADERS) break;
    const plain =
      typeof value === 'string' ||
      typeof value === 'boolean' ||
      (typeof value === 'number' && Number.isFinite(value));
    if (!plain || name.includes('\0') || name.startsWith('$') || TRANSPORT_HEADER.test(name)) continue;
    if (Buffer.byteLength(name) + Buffer.byteLength(String(value)) <= MAX_HEADER_BYTES) kept[name] = value;
  }
  return kept;
}

/** A key of any length keeps its identity; what is stored of it is bounded. */
function boundedKey(key: string | undefined): string | undefined {
  if (key === undefined || Buffer.byteLength(key) <= MAX_KEY_BYTES) return key;
  return `sha256:${createHash('sha256').update(key).digest('hex')}`;
}

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
