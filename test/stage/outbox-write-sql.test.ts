import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { promisify } from 'node:util';
import pg from 'pg';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { inTransaction, migrateOutbox, writeEvent } from '../../src/outbox/index.js';
import { DEFAULT_MAX_BODY_BYTES } from '../../src/runtime/limits.js';
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

const rows = async (): Promise<Record<string, unknown>[]> =>
  (
    await pool.query<Record<string, unknown>>(
      `SELECT event_id, type, routing_key, key, body, content_type, headers, publish_after FROM outbox o ORDER BY o.id`,
    )
  ).rows;

/** The event by outbox_write, in a statement of its own. @returns its id */
async function writeBySql(event: Record<string, unknown>): Promise<string> {
  const names = Object.keys(event);
  const { rows: answer } = await pool.query<{ id: string }>(
    `SELECT outbox_write(${names.map((name, index) => `${name} => $${index + 1}`).join(', ')}) AS id`,
    Object.values(event),
  );
  return answer[0]!.id;
}

/** What psql says to these statements, read from its standard input as from a script. */
async function psql(script: string): Promise<{ stdout: string; stderr: string }> {
  const running = promisify(execFile)('psql', [database.url, '-X', '-q', '-A', '-t'], {
    env: { ...process.env, PGCLIENTENCODING: 'UTF8', LC_ALL: 'C' },
  });
  running.child.stdin?.end(script);
  return running;
}

test('psql writes in its transaction, by position and by name', async () => {
  const { stdout, stderr } = await psql(`
    BEGIN;
    SELECT outbox_write('order.placed', '{"orderId": "o-1"}', key => 'o-1', headers => '{"tenant": "blue"}');
    COMMIT;
    BEGIN;
    SELECT outbox_write('order.lost', '{}');
    ROLLBACK;
    SELECT outbox_write('order.noted', '{"a": 1}', 'k''2', 'orders');
    SELECT outbox_write('reminder.due', '{}', publish_after => now() + interval '1 hour');`);
  expect(stderr).toBe('');
  const written = await rows();
  expect(written).toMatchObject([
    { type: 'order.placed', key: 'o-1', headers: { tenant: 'blue' }, content_type: 'application/json' },
    { type: 'order.noted', key: `k'2`, routing_key: 'orders', headers: {} },
    { type: 'reminder.due', key: null, publish_after: expect.any(Date) as Date },
  ]);
  expect(JSON.parse(String(written[0]!.body))).toEqual({ orderId: 'o-1' });
  const ids = stdout.split('\n').filter((line) => line !== '');
  expect(ids).toHaveLength(4); // one of them rolled back
  expect(ids).toEqual(expect.arrayContaining(written.map(({ event_id }) => event_id)));
});

test('psql is told what to change, and its transaction does not commit', async () => {
  const { stderr } = await psql(`
    BEGIN;
    SELECT outbox_write('order.placed', '{}');
    SELECT outbox_write('', '{}', headers => '{"cc": "twinbox.other", "x-key": "o-1"}');
    COMMIT;`);
  expect(stderr).toContain(
    'ERROR:  outbox_write: the event was not written: type must have 1 to 255 bytes in UTF-8: give a short name such as ' +
      'order.placed; headers.cc has a meaning for the broker, which would send copies: use another name; ' +
      'headers.x-key is a header that the way itself writes: use another name',
  );
  expect(await rows()).toEqual([]);
});

test('bytes go with their content type; null is what was left out', async () => {
  const bytes = Buffer.from([0, 255, 128]);
  const eventId = randomUUID();
  const id = await writeBySql({ type: 'scan.done', bytes, content_type: 'image/tiff', event_id: eventId });
  expect(id).toBe(eventId);
  const other = await writeBySql({
    ...{ type: 't', body: 'null', key: null, routing_key: null, headers: null },
    ...{ event_id: null, publish_after: null, bytes: null, content_type: null },
  });
  expect(await rows()).toMatchObject([
    { event_id: eventId, body: bytes, content_type: 'image/tiff' },
    { event_id: other, body: Buffer.from('null'), content_type: 'application/json', headers: {} },
  ]);
  await expect(writeBySql({ type: 't' })).rejects.toThrow('body is null: give body');
  await expect(writeBySql({ type: 't', body: '{}', bytes })).rejects.toThrow('body and bytes are both given');
});

test('a body ends at the same size as elsewhere', async () => {
  await writeBySql({ type: 't', bytes: Buffer.alloc(DEFAULT_MAX_BODY_BYTES) });
  await expect(writeBySql({ type: 't', bytes: Buffer.alloc(DEFAULT_MAX_BODY_BYTES + 1) })).rejects.toThrow(
    `body has ${DEFAULT_MAX_BODY_BYTES + 1} bytes, more than ${DEFAULT_MAX_BODY_BYTES}`,
  );
  const json = JSON.stringify('x'.repeat(DEFAULT_MAX_BODY_BYTES - 2));
  await writeBySql({ type: 't', body: json });
  await expect(writeBySql({ type: 't', body: `"x${json.slice(1)}` })).rejects.toThrow('8388609 bytes');
});

test('odd characters stay what they are; U+0000 is refused by the server', async () => {
  for (const odd of [`ünïcödé 🦊 '"\\ $1 %s %`, 'tab\tnew\nline\u0001', ' spaces ', '#.*']) {
    await pool.query('TRUNCATE outbox');
    await writeBySql({
      type: odd,
      key: odd,
      routing_key: odd,
      headers: { [odd]: odd },
      body: { [odd]: odd },
    });
    const [row] = await rows();
    expect(row).toMatchObject({ type: odd, key: odd, routing_key: odd, headers: { [odd]: odd } });
    expect(JSON.parse(String(row!.body))).toEqual({ [odd]: odd });
  }
  await expect(writeBySql({ type: 'a\0b', body: '{}' })).rejects.toMatchObject({ code: '22021' });
  await expect(writeBySql({ type: 't', key: 'a\0b', body: '{}' })).rejects.toThrow('invalid byte sequence');
  await expect(writeBySql({ type: 't', body: '{"a":"\\u0000"}' })).rejects.toMatchObject({ code: '22P05' });
});

const W3C = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
const many = (count: number, value: unknown): object =>
  Object.fromEntries(Array.from({ length: count }, (_, index) => [`h-${index + 100}`, value]));

/** Both ways of writing, of one mind: [headers or fields, whether they pass, a part of both messages]. */
test.each<[string, Record<string, unknown>, string | undefined]>([
  ['CC', { headers: { CC: 'x' } }, 'headers.CC has a meaning for the broker'],
  ['bCc', { headers: { bCc: 'x' } }, 'headers.bCc has a meaning for the broker'],
  ['ACC', { headers: { ACC: 'x' } }, undefined],
  ...[
    'x-key',
    'X-Sequence',
    'x-created-at-ms',
    'x-reason',
    'x-detail',
    'x-died-at-ms',
    'x-replayed-from',
    'X-Replay-Count',
    'x-original-exchange',
    'x-death',
  ].map((name): [string, Record<string, unknown>, string] => [
    name,
    { headers: { [name]: 'x' } },
    `headers.${name} is a header that the way itself writes`,
  ]),
  ['x-keys', { headers: { 'x-keys': 'x' } }, undefined],
  ['a traceparent', { headers: { traceparent: W3C } }, undefined],
  ['another traceparent', { headers: { traceparent: 'x' } }, 'headers.traceparent is not a W3C traceparent'],
  ['Traceparent', { headers: { Traceparent: W3C } }, 'headers.Traceparent is not'],
  ['$', { headers: { $a: 'x' } }, 'headers.$a has a name that the inbox does not keep'],
  ['a null', { headers: { a: null } }, 'a header is a string, a number or a boolean'],
  ['an array', { headers: { a: ['x'] } }, 'a header is a string, a number or a boolean'],
  ['an object', { headers: { a: {} } }, 'a header is a string, a number or a boolean'],
  ['numbers', { headers: { a: 2 ** 53 - 1, b: -(2 ** 53 - 1), c: 5e-324, d: false } }, undefined],
  ['2^53', { headers: { a: 2 ** 53 } }, 'headers.a is a number beyond 2^53 - 1'],
  ['-1e300', { headers: { a: -1e300 } }, 'headers.a is a number beyond 2^53 - 1'],
  ['1,024 bytes', { headers: { é: 'é'.repeat(511) } }, undefined],
  ['1,025 bytes', { headers: { é: `${'é'.repeat(511)}x` } }, 'name and value together'],
  ['a long name', { headers: { ['n'.repeat(256)]: 1 } }, '255'],
  ['64 headers', { headers: { ...many(64, 1), traceparent: W3C } }, undefined],
  ['65 headers', { headers: many(65, 1) }, 'more than the 64 that the inbox keeps'],
  ['32 KiB', { headers: many(32, 'x'.repeat(1_019)) }, undefined],
  ['above 32 KiB', { headers: { ...many(32, 'x'.repeat(1_019)), b: '' } }, '32768'],
  ['an array of headers', { headers: [] }, 'headers is'],
  ['an empty type', { type: '' }, 'type '],
  ['a type of 256 bytes', { type: 'é'.repeat(128) }, 'type '],
  ['an empty key', { key: '' }, 'key '],
  ['a key of 1,025 bytes', { key: 'x'.repeat(1_025) }, 'key '],
  ['a delay with a key', { key: 'k', publishAfter: new Date(1) }, 'publish'],
])('%s: refused or taken alike', async (_name, fields, refused) => {
  const inTypeScript = inTransaction(pool, (tx) => writeEvent(tx, { type: 't', body: {}, ...fields }));
  const { publishAfter, headers, ...rest } = fields;
  const inSql = writeBySql({
    ...{ type: 't', body: '{}', ...rest },
    ...(headers !== undefined && { headers: JSON.stringify(headers) }),
    ...(publishAfter !== undefined && { publish_after: publishAfter }),
  });
  if (refused === undefined) {
    await Promise.all([inTypeScript, inSql]);
    const [first, second] = await rows();
    expect(first!.headers).toEqual(second!.headers);
  } else {
    const both = await Promise.allSettled([inTypeScript, inSql]);
    for (const one of both)
      expect(one).toMatchObject({
        status: 'rejected',
        reason: { message: expect.stringContaining(refused) as string },
      });
    expect(both[1]).toMatchObject({ reason: { code: '23514' } });
    expect(await rows()).toEqual([]);
  }
});

test('what SQL alone can say is refused: no type, a number without end, a time without end', async () => {
  for (const [event, expected] of [
    [{ type: null, body: '{}' }, 'type must have 1 to 255 bytes'],
    [{ type: 't', body: '{}', content_type: '' }, 'content_type must have 1 to 255 bytes'],
    [{ type: 't', body: '{}', routing_key: '' }, 'routing_key must have 1 to 255 bytes'],
    [{ type: 't', body: '{}', publish_after: 'infinity' }, 'publish_after is infinite'],
    [{ type: 't', body: '{}', headers: '{"a":1e400}' }, 'headers.a is a number beyond'],
    [{ type: 't', body: '{}', headers: '{"":1}' }, 'must have a name of 1 to 255 bytes'],
    [{ type: 't', body: '{}', headers: '{"_bsontype":"x"}' }, 'has a name that the inbox does not keep'],
    [{ type: 't', body: '{}', headers: '{"__proto__":1}' }, 'has a name that the inbox does not keep'],
  ] as const)
    await expect(writeBySql(event)).rejects.toThrow(expected);
});

test('a plain INSERT works too; the table keeps the sizes', async () => {
  await pool.query(`INSERT INTO outbox (type, body) VALUES ('plain', '{}')`);
  expect(await rows()).toMatchObject([{ type: 'plain', content_type: 'application/json', headers: {} }]);
  const insert = (columns: string, ...values: unknown[]): Promise<unknown> =>
    pool.query(
      `INSERT INTO outbox (type, body, ${columns}) VALUES ('t', '', ${values.map((_, i) => `$${i + 1}`).join(', ')})`,
      values,
    );
  await expect(insert('key', 'x'.repeat(1_025))).rejects.toMatchObject({ constraint: 'outbox_key_check' });
  await expect(insert('routing_key', '')).rejects.toMatchObject({ constraint: 'outbox_routing_key_check' });
  await expect(insert('headers', '[]')).rejects.toMatchObject({ constraint: 'outbox_headers_check' });
  await expect(insert('key, publish_after', 'k', new Date())).rejects.toMatchObject({
    constraint: 'outbox_delay_has_no_key',
  });
  await expect(
    pool.query(`INSERT INTO outbox (type, body) VALUES (repeat('é', 128), '')`),
  ).rejects.toMatchObject({
    constraint: 'outbox_type_check',
  });
});
