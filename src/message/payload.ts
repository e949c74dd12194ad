import { decodedBody } from './encoding.js';

export type Payload = { readonly value: unknown } | { readonly fault: string };

/** The JSON value of a stored body, or why there is none. Bytes that are not UTF-8 are a fault, not U+FFFD. */
export function readPayload(body: Buffer, contentEncoding: string | undefined, maxBytes: number): Payload {
  const decoded = decodedBody(body, contentEncoding, maxBytes);
  if ('reason' in decoded) return { fault: decoded.detail };
  let json: string;
  try {
    json = new TextDecoder('utf-8', { fatal: true }).decode(decoded.body);
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
