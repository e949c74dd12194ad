import type { Refusal } from '../refusal.js';

export type FormatName =
  | 'plain'
  | 'cloudevents-structured'
  | 'cloudevents-binary'
  | 'masstransit'
  | 'masstransit-raw'
  | 'nservicebus'
  | 'celery'
  | 'debezium'
  | 'spring'
  | 'symfony'
  | 'laravel'
  | 'cap';

/** A delivery, as the formats look at it. */
export interface Parts {
  readonly properties: Readonly<Record<string, unknown>>;
  /** Own members of the header table alone. */
  readonly headers: ReadonlyMap<string, unknown>;
  readonly contentType: string;
  /** The JSON value of the decoded body. */
  json(): { readonly value: unknown } | { readonly fault: string };
}

/** What a format knows of one message. What is left out is taken from the AMQP properties. */
export interface Description {
  /** As it stands there; undefined where there is none. Text or bytes: see `idFrom`. */
  readonly id: unknown;
  /** Where the id was found: `props.messageId`, `body.source+id` … */
  readonly idSource: string;
  readonly type?: string | undefined;
  readonly key?: string | undefined;
  readonly createdAtMs?: number | undefined;
  readonly correlationId?: string | undefined;
  readonly traceparent?: string | undefined;
  /** The message's own part of a body that holds several; the whole body otherwise. */
  readonly body?: Buffer;
}

export interface Format {
  readonly name: FormatName;
  /** Why it is this format, for people; undefined when it is not. */
  detect(parts: Parts): string | undefined;
  /** One description a message: a batch holds several. */
  read(parts: Parts): readonly Description[] | Refusal;
  /** What the sender has to do when no id is found. */
  readonly withoutId: string;
  /** What the effect gets of the JSON value of the body; the value itself without this. */
  payload?(value: unknown): { readonly value: unknown } | { readonly fault: string };
  /** Content types that are never opened, and why. */
  unopened?(contentType: string): string | undefined;
}

export const isTable = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !Buffer.isBuffer(value);

/** A header or member as text; bytes count where they are UTF-8. */
export function textOf(value: unknown): string | undefined {
  if (Buffer.isBuffer(value)) {
    try {
      return new TextDecoder('utf-8', { fatal: true }).decode(value);
    } catch {
      return undefined;
    }
  }
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** Milliseconds since 1970 of a time as text, or of AMQP's timestamp header. */
export function timeOf(value: unknown): number | undefined {
  const text = textOf(value);
  const ms = text === undefined ? timestampMs(value) : Date.parse(text);
  return ms !== undefined && Number.isFinite(ms) && ms > 0 ? ms : undefined;
}

/** AMQP says seconds; some libraries send milliseconds, which as seconds would lie beyond the year 5000. */
export function timestampMs(value: unknown): number | undefined {
  // A timestamp within headers is decoded as { '!': 'timestamp', value }.
  const number = isTable(value) && value['!'] === 'timestamp' ? value.value : value;
  if (typeof number !== 'number' || !Number.isFinite(number) || number <= 0) return undefined;
  return number > 1e11 ? number : number * 1_000;
}

/** The body as a table. */
export function tableIn(parts: Parts): { readonly table: Readonly<Record<string, unknown>> } | Refusal {
  const json = parts.json();
  if ('fault' in json) return badEnvelope(json.fault);
  return isTable(json.value) ? { table: json.value } : badEnvelope('the body is no JSON object');
}

export const badEnvelope = (detail: string): Refusal => ({ reason: 'bad-envelope', detail });
