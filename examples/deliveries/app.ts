import { isUtf8 } from 'node:buffer';
import { randomUUID } from 'node:crypto';
import { verify } from '@octokit/webhooks-methods';
import { Hono } from 'hono';
import { bodyLimit } from 'hono/body-limit';
import type pg from 'pg';
import { inTransaction, writeEvent } from '../../src/outbox/index.js';
import { readDelivery, toEvent, UnusableDelivery, type Delivery } from './delivery.js';
import { countForRepository, insertDelivery } from './tables.js';

export interface AppOptions {
  readonly pool: pg.Pool;
  /** The secret that GitHub signs with. */
  readonly secret: string;
  /** Largest body in bytes. */
  readonly maxBytes?: number;
  /** Told of every delivery that could not be stored, for the log. */
  readonly onFault?: (error: Error) => void;
}

/** GitHub sends up to 25 MB; this leaves room in the largest event that writeEvent takes (8 MiB) for what is put around it. */
export const DEFAULT_MAX_BYTES = 7 * 1024 * 1024;

/**
 * `POST /webhooks/github`: 202 stored now, 200 stored before, 400 not a delivery, 401 not signed with our
 * secret, 413 too large, 503 the database is away (send it again), 500 any other fault.
 */
export function createApp({ pool, secret, maxBytes = DEFAULT_MAX_BYTES, onFault }: AppOptions): Hono {
  const app = new Hono();
  const limit = bodyLimit({
    maxSize: maxBytes,
    onError: (c) => c.json({ error: `the body is larger than ${maxBytes} bytes` }, 413),
  });

  app.get('/healthz', (c) => c.text('ok\n'));

  app.post('/webhooks/github', limit, async (c) => {
    const bytes = Buffer.from(await c.req.arrayBuffer());
    if (!(await isSigned(bytes, c.req.header('x-hub-signature-256'), secret)))
      return c.json({ error: 'x-hub-signature-256 is missing or not made with our secret' }, 401);

    const delivery = readDelivery(
      c.req.header('x-github-delivery'),
      c.req.header('x-github-event'),
      bytes.toString(),
    );
    const eventId = await store(pool, delivery);
    if (eventId === undefined) return c.json({ status: 'seen' }, 200);
    return c.json({ status: 'accepted', eventId }, 202);
  });

  app.onError((error, c) => {
    if (error instanceof UnusableDelivery) return c.json({ error: error.message }, 400);
    onFault?.(error);
    if (!mayPass(error)) return c.json({ error: 'the delivery could not be stored' }, 500);
    c.header('retry-after', '1');
    return c.json({ error: 'the database is away; send the delivery again' }, 503);
  });
  return app;
}

/** The application's change and its event: both, or neither. The event's id, or undefined if it was seen before. */
async function store(pool: pg.Pool, delivery: Delivery): Promise<string | undefined> {
  const event = toEvent(delivery, randomUUID());
  return inTransaction(pool, async (tx) => {
    if (!(await insertDelivery(tx, delivery, event))) return undefined;
    // Its row lock is held to the commit, so that the events of one repository get their outbox ids in the
    // order in which they commit.
    if (delivery.repository !== null) await countForRepository(tx, delivery, delivery.repository);
    await writeEvent(tx, event);
    return event.eventId;
  });
}

/** GitHub signs the bytes. The library takes text, so bytes that text would alter are refused before. */
async function isSigned(bytes: Buffer, signature: string | undefined, secret: string): Promise<boolean> {
  if (signature === undefined || signature === '' || bytes.length === 0 || !isUtf8(bytes)) return false;
  return verify(secret, bytes.toString(), signature);
}

/**
 * Whether the same delivery may be stored a moment later: the connection failed (its errors carry no
 * SQLSTATE), or the server says that it has no room, is going down, is a standby, or gave way to another
 * transaction. The outcome of a lost COMMIT is unknown; sending again is safe, the delivery's id is the key.
 */
function mayPass(error: Error): boolean {
  const code = 'code' in error ? error.code : undefined;
  if (typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code)) return /^(08|40|53|55|57|25006)/.test(code);
  return !(error instanceof TypeError || error instanceof RangeError);
}
