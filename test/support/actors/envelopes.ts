import { createHash } from 'node:crypto';
import type { Envelope } from '../../../src/message/index.js';

export const GOOD_BODY = { orderId: 'o-1', email: 'a@example.org', totalCents: 1999 };

/** A message as ingest hands it to the inbox. */
export function envelope(messageId: string, body: object | Buffer = GOOD_BODY): Envelope {
  const bytes = Buffer.isBuffer(body) ? body : Buffer.from(JSON.stringify(body));
  return {
    messageId,
    bodyHash: createHash('sha256').update(bytes).digest('hex'),
    type: 'order.placed',
    body: bytes,
    headers: {},
    source: {
      exchange: 'twinbox.events',
      routingKey: 'order.placed',
      format: 'plain',
      idSource: 'props.messageId',
    },
  };
}

/** Ids that break a queue which takes them as they are. */
export const STRANGE_IDS: readonly string[] = [
  '123', '-5', '0', '0:1', '007', '1e5', '9007199254740992', '9007199254740993',
  'a:b', 'a:b:c', 'a:b:c:d', 'urn:uuid:3f2b0c9e-0d0a-4f6e-9b57-0a1d6f2f5b11',
  'active', 'wait', 'completed', 'failed', 'delayed', 'meta', 'events', 'id', 'marker', 'stalled',
  '__proto__', 'constructor', 'hasOwnProperty', 'A', 'a', '{receipt}', '*', 'a\0b', 'a\nb', 'a b', '🧾-1',
  'x'.repeat(255), '€'.repeat(85),
]; // prettier-ignore
