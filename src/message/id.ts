import { textOf } from './formats/index.js';
import type { Refusal } from './refusal.js';

const MAX_ID_BYTES = 512;

/**
 * An id as any store can hold it: opaque, of valid UTF-8, 1 to 512 bytes. Two that differ stay two.
 * @param value text, bytes, or a number as some producers send it
 */
export function readId(value: unknown): { readonly messageId: string } | Refusal {
  if (Buffer.isBuffer(value) && value.length > 0 && textOf(value) === undefined)
    return { reason: 'bad-id', detail: 'the id is not UTF-8' };
  if (typeof value === 'number' && !Number.isSafeInteger(value))
    return {
      reason: 'bad-id',
      detail: 'the id is a number beyond 2^53, of which two may be read alike: send it as text',
    };
  const text = typeof value === 'number' || typeof value === 'bigint' ? String(value) : (textOf(value) ?? '');
  if (text.trim() === '') {
    return {
      reason: 'no-id',
      detail:
        'there is no id, or a blank one, and without a stable one a second delivery cannot be recognised',
    };
  }
  // The client library turns bytes that are not UTF-8 into U+FFFD: two such ids could fall together. Half of a
  // surrogate pair, as JSON can hold one, becomes the same when it is stored.
  if (text.includes('\uFFFD') || Buffer.from(text).toString() !== text)
    return { reason: 'bad-id', detail: 'the id is not UTF-8' };
  const bytes = Buffer.byteLength(text);
  if (bytes > MAX_ID_BYTES)
    return { reason: 'bad-id', detail: `the id has ${bytes} bytes, more than ${MAX_ID_BYTES}` };
  return { messageId: text };
}
