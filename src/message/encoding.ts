import { brotliDecompressSync, gunzipSync, inflateSync } from 'node:zlib';
import type { Refusal } from './refusal.js';

const DECODERS: Readonly<Record<string, (bytes: Buffer, options: { maxOutputLength: number }) => Buffer>> = {
  gzip: gunzipSync,
  'x-gzip': gunzipSync,
  deflate: inflateSync,
  br: brotliDecompressSync,
};
/** Values that name a character set or nothing at all; some client libraries put them here. */
const PLAIN = new Set(['', 'identity', 'utf-8', 'utf8', 'binary']);

/**
 * The body without its `content_encoding`, never larger than `maxBytes`: a few kB can unfold to gigabytes.
 */
export function decodedBody(
  body: Buffer,
  contentEncoding: string | undefined,
  maxBytes: number,
): { body: Buffer } | Refusal {
  const encoding = (contentEncoding ?? '').trim().toLowerCase();
  if (PLAIN.has(encoding)) return { body };
  const decode = Object.hasOwn(DECODERS, encoding) ? DECODERS[encoding] : undefined;
  if (decode === undefined) {
    return {
      reason: 'undecodable',
      detail: `content_encoding ${JSON.stringify(encoding.slice(0, 60))} is unknown; known are gzip, deflate and br`,
    };
  }
  try {
    return { body: decode(body, { maxOutputLength: maxBytes }) };
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return code === 'ERR_BUFFER_TOO_LARGE'
      ? { reason: 'too-large', detail: `the body unfolds to more than MAX_BODY_BYTES = ${maxBytes}` }
      : { reason: 'undecodable', detail: `the body is not ${encoding}: ${message}` };
  }
}
