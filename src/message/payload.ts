import { decodedBody } from './encoding.js';
import { formatNamed } from './formats/index.js';

export type Payload = { readonly value: unknown } | { readonly fault: string };

/** What is read of a stored message to find what its effect gets. */
export interface StoredBody {
  readonly body: Buffer;
  readonly contentType?: string | undefined;
  readonly contentEncoding?: string | undefined;
  /** `source.format` of the document. */
  readonly format: string;
}

/** What the effect gets of a stored message: the JSON value of its body, or what its format wraps in it. */
export function readPayload(stored: StoredBody, maxBytes: number): Payload {
  const format = formatNamed(stored.format);
  const unopened = format.unopened?.(stored.contentType ?? '');
  if (unopened !== undefined) return { fault: unopened };
  const decoded = decodedBody(stored.body, stored.contentEncoding, maxBytes);
  if ('reason' in decoded) return { fault: decoded.detail };
  const json = jsonOf(decoded.body);
  return 'fault' in json || format.payload === undefined ? json : format.payload(json.value);
}

/** The JSON value of a decoded body, or why there is none. Bytes that are not UTF-8 are a fault, not U+FFFD. */
export function jsonOf(body: Buffer): Payload {
  let json: string;
  try {
    json = new TextDecoder('utf-8', { fatal: true }).decode(body);
  } catch {
    return { fault: 'the body is not UTF-8' };
  }
  try {
    return { value: JSON.parse(json) as unknown };
  } catch {
    // The parser's own words quote the body; a stored error must not.
    return { fault: 'the body is not JSON' };
  }
}
