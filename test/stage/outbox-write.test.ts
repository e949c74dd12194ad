import { randomUUID } from 'node:crypto';
import { context } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { BasicTracerProvider } from '@opentelemetry/sdk-trace-base';
import { sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
import { CompiledQuery, Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import {
  inTransaction,
  migrateOutbox,
  writeEvent,
  type OutboxEvent,
  type QueryFunction,
  type WrittenEvent,
} from '../../src/outbox/index.js';
import { freshDatabase } from '../support/stores.js';

let database: Awaited<ReturnType<typeof freshDatabase>>;
let pool: pg.Pool;

beforeAll(async () => {
  database = await freshDatabase();
  await migrateOutbox(database.url);
  pool = new pg.Pool({ connectionString: database.url, max: 4 });
});
afterAll(async () => {
  await pool.end();
  await database.drop();
});
beforeEach(async () => {
  await pool.query('TRUNCATE outbox');
});

const write = (over: Partial<OutboxEvent> = {}): Promise<WrittenEvent> =>
  inTransaction(pool, (tx) => writeEvent(tx, { type: 'order.placed', body: { orderId: 'o-1' }, ...over }));
const rows = async (): Promise<Record<string, unknown>[]> =>
  (
    await pool.query<Record<string, unknown>>(
      `SELECT id::text AS id, event_id, type, routing_key, key, convert_from(body, 'UTF8') AS body, content_type, headers,
              publish_after, abs(extract(epoch FROM clock_timestamp() - created_at)) < 60 AS fresh
         FROM outbox o ORDER BY o.id`,
    )
  ).rows;

test('a row has everything that the event was given', async () => {
  const eventId = randomUUID();
  const { id } = await write({
    eventId,
    key: 'o-1',
    routingKey: 'orders',
    headers: { tenant: 'blue', n: 1.5 },
  });
  const text = await write({
    body: Buffer.from('<a/>'),
    contentType: 'text/xml',
    eventId: randomUUID().toUpperCase(),
  });
  expect(text.eventId).toMatch(/^[0-9a-f-]{36}$/); // as Postgres writes it, and so all the way
  expect(await rows()).toEqual([
    {
      id,
      event_id: eventId,
      type: 'order.placed',
      routing_key: 'orders',
      key: 'o-1',
      body: '{"orderId":"o-1"}',
      content_type: 'application/json',
      headers: { tenant: 'blue', n: 1.5 },
      publish_after: null,
      fresh: true,
    },
    expect.objectContaining({
      event_id: text.eventId,
      key: null,
      routing_key: null,
      body: '<a/>',
      content_type: 'text/xml',
    }),
  ]);
});

test('an id that was written before is refused by the table', async () => {
  const { eventId } = await write();
  await expect(write({ eventId })).rejects.toMatchObject({ code: '23505' });
  expect(await rows()).toHaveLength(1);
});

test('a delayed event has its time to the millisecond', async () => {
  const publishAfter = new Date(Date.now() + 3_600_123);
  await write({ publishAfter });
  expect(await rows()).toMatchObject([{ publish_after: publishAfter }]);
});

const ODD = [
  'ünïcödé 🦊 漢字',
  `'; DROP TABLE outbox; --`,
  '"quoted" \\back\\slash\\ $1 %s ? :name',
  'tab\tnew\nline\r\u0001\u007f\u2028',
  ' spaces ',
  'e\u0301 is not \u00e9',
  '#.*.order',
  '\ufeff\u202e',
];

test.each(ODD)(
  'types, keys, routing keys and headers of odd characters stay what they are: %j',
  async (odd) => {
    await write({ type: odd, key: odd, routingKey: odd, headers: { [odd]: odd }, body: { [odd]: odd } });
    expect(await rows()).toMatchObject([
      {
        type: odd,
        key: odd,
        routing_key: odd,
        headers: { [odd]: odd },
        body: JSON.stringify({ [odd]: odd }),
      },
    ]);
    await expect(write({ type: `${odd}\0` })).rejects.toThrow('type contains the character U+0000');
    await expect(write({ key: `${odd}\0` })).rejects.toThrow('key contains the character U+0000');
  },
);

test('the largest of everything is taken by the table', async () => {
  const headers = Object.fromEntries(
    Array.from({ length: 64 }, (_, index) => [`h-${index + 100}`, 'x'.repeat(507)]),
  );
  const [type, routingKey, contentType] = ['t', 'r', 'c'].map((letter) => `${letter.repeat(253)}é`) as [
    string,
    string,
    string,
  ];
  await write({
    type,
    routingKey,
    contentType,
    headers,
    key: `${'🦊'.repeat(255)}four`,
    body: Buffer.alloc(8_388_608),
  });
  await expect(write({ body: Buffer.alloc(8_388_609) })).rejects.toThrow('body has 8388609 bytes');
  const { rows: sizes } = await pool.query(
    `SELECT octet_length(type) AS type, octet_length(routing_key) AS routing, octet_length(content_type) AS content,
            octet_length(key) AS key, octet_length(body) AS body FROM outbox`,
  );
  expect(sizes).toEqual([{ type: 255, routing: 255, content: 255, key: 1_024, body: 8_388_608 }]);
});

test('the active span is kept with the row', async () => {
  const manager = new AsyncLocalStorageContextManager().enable();
  expect(context.setGlobalContextManager(manager)).toBe(true);
  try {
    await new BasicTracerProvider().getTracer('test').startActiveSpan('place order', async (span) => {
      await write({ headers: { tenant: 'blue' } });
      const { traceId, spanId } = span.spanContext();
      expect(await rows()).toMatchObject([
        { headers: { tenant: 'blue', traceparent: `00-${traceId}-${spanId}-01` } },
      ]);
      span.end();
    });
  } finally {
    context.disable();
  }
});

/** A transaction as Prisma gives it: `$queryRawUnsafe(text, ...values)` answers the rows alone. */
interface PrismaTransaction {
  $queryRawUnsafe(text: string, ...values: unknown[]): Promise<unknown>;
}

/** Each runs work in a transaction of that library, with the adapter line of docs/writing-events.md. */
const LIBRARIES: Record<string, (work: (query: QueryFunction) => Promise<void>) => Promise<void>> = {
  Kysely: (work) =>
    new Kysely<object>({ dialect: new PostgresDialect({ pool }) })
      .transaction()
      .execute((trx) => work((text, params) => trx.executeQuery(CompiledQuery.raw(text, params)))),
  Drizzle: (work) =>
    drizzle(pool).transaction((tx) =>
      work((text, params) => tx.execute(sql(text.split(/\$\d+/) as never, ...params))),
    ),
  'Prisma’s raw call': (work) =>
    inTransaction(pool, (client) => {
      const tx: PrismaTransaction = {
        $queryRawUnsafe: async (text, ...values) => (await client.query<object>(text, values)).rows,
      };
      return work((text, params) => tx.$queryRawUnsafe(text, ...params));
    }),
};

describe.each(Object.entries(LIBRARIES))('%s', (_name, transaction) => {
  test('writes in its own transaction: with a commit all is there, with a rollback nothing', async () => {
    const eventId = randomUUID();
    const full = { eventId, key: `o'1`, headers: { a: '$1 ?' }, body: { '?': '$2 🦊' } };
    await transaction(async (query) => {
      await writeEvent(query, { type: 'order.placed', ...full });
      await writeEvent(query, { type: 'order.later', body: Buffer.from([48]), publishAfter: new Date(1) });
      expect(await rows()).toEqual([]);
    });
    expect(await rows()).toMatchObject([
      { event_id: eventId, key: `o'1`, headers: { a: '$1 ?' }, body: '{"?":"$2 🦊"}', publish_after: null },
      { type: 'order.later', key: null, headers: {}, body: '0', publish_after: new Date(1) },
    ]);
    await expect(
      transaction(async (query) => {
        await writeEvent(query, { type: 'order.placed', body: {} });
        throw new Error('the business said no');
      }),
    ).rejects.toThrow('the business said no');
    expect(await rows()).toHaveLength(2);
  });

  test('an event that is refused is refused before anything is sent', async () => {
    await transaction(async (query) => {
      await expect(writeEvent(query, { type: '', body: undefined })).rejects.toThrow('type is empty');
      await writeEvent(query, { type: 'order.placed', body: {} });
    });
    expect(await rows()).toHaveLength(1);
  });
});
