import { randomUUID } from 'node:crypto';
import { request } from 'node:http';
import { sign } from '@octokit/webhooks-methods';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { migrateTables } from '../../examples/deliveries/tables.js';
import { migrateOutbox } from '../../src/outbox/index.js';
import { until } from '../support/until.js';
import { MAX_BYTES, SECRET, serve, type RunningApp } from './deliveries-server.js';
import { freshDatabase } from '../support/stores.js';

const HELLO = { action: 'opened', issue: { title: 'It breaks' }, repository: { full_name: 'octo/hello' } };

let database: Awaited<ReturnType<typeof freshDatabase>>;
let pool: pg.Pool;
let faults: Error[];
const onFault = (error: Error) => void faults.push(error);
let app: RunningApp;

interface Sending {
  readonly id?: string;
  readonly event?: string;
  readonly headers?: Record<string, string>;
  readonly to?: string;
}

async function send(
  body: string,
  { id = randomUUID(), event = 'issues', headers, to = app.url }: Sending = {},
) {
  const response = await fetch(to, {
    method: 'POST',
    body,
    headers: {
      'x-github-delivery': id,
      'x-github-event': event,
      'x-hub-signature-256': await sign(SECRET, body),
      ...headers,
    },
  });
  return { status: response.status, answer: (await response.json()) as Record<string, string> };
}

async function count(table: 'delivery' | 'repository' | 'outbox'): Promise<number> {
  const { rows } = await pool.query<{ n: number }>(`select count(*)::int as n from ${table}`);
  return rows[0]!.n;
}
const counts = async () => [await count('delivery'), await count('repository'), await count('outbox')];

beforeAll(async () => {
  database = await freshDatabase();
  pool = new pg.Pool({ connectionString: database.url });
  pool.on('error', () => undefined);
  await migrateOutbox(database.url);
  await Promise.all([migrateTables(pool), migrateTables(pool)]);
  await migrateTables(pool);
});

afterAll(async () => {
  await pool.end();
  await database.drop();
});

beforeEach(async () => {
  faults = [];
  await pool.query('truncate delivery, repository, outbox');
  app = await serve({ pool, onFault });
});

afterEach(() => app.crash());

describe('a delivery', () => {
  it('is stored with its event in one transaction', async () => {
    const id = randomUUID();
    const { status, answer } = await send(JSON.stringify(HELLO), { id });
    expect([status, answer.status]).toEqual([202, 'accepted']);

    const { rows } = await pool.query(
      `select o.event_id, o.type, o.key, o.content_type, convert_from(o.body, 'UTF8')::jsonb as body,
              o.xmin = d.xmin and d.xmin = r.xmin as together, r.deliveries::int, d.id
       from outbox o join delivery d using (event_id) join repository r on r.full_name = d.repository`,
    );
    expect(rows).toEqual([
      {
        event_id: answer.eventId,
        type: 'github.issues.opened',
        key: 'octo/hello',
        content_type: 'application/json',
        together: true,
        deliveries: 1,
        id,
        body: {
          deliveryId: id,
          event: 'issues',
          action: 'opened',
          repository: 'octo/hello',
          sender: null,
          title: 'It breaks',
          recipient: 'octo@example.org',
          payload: HELLO,
        },
      },
    ]);
  });

  it('that was seen before writes nothing', async () => {
    const id = randomUUID();
    expect((await send(JSON.stringify(HELLO), { id })).status).toBe(202);
    expect(await send(JSON.stringify(HELLO), { id })).toEqual({ status: 200, answer: { status: 'seen' } });
    expect(await counts()).toEqual([1, 1, 1]);
    const { rows } = await pool.query('select deliveries::int from repository');
    expect(rows).toEqual([{ deliveries: 1 }]);
  });

  it('that comes twenty times at once is stored once', async () => {
    const id = randomUUID();
    const answers = await Promise.all(Array.from({ length: 20 }, () => send(JSON.stringify(HELLO), { id })));
    expect(answers.map(({ status }) => status).sort()).toEqual([...Array<number>(19).fill(200), 202]);
    expect(await counts()).toEqual([1, 1, 1]);
  });

  it('without a repository has no key', async () => {
    const body = JSON.stringify({ action: 'member_added', organization: { login: 'octo-org' } });
    expect((await send(body, { event: 'organization' })).status).toBe(202);
    expect(await counts()).toEqual([1, 0, 1]);
    const { rows } = await pool.query('select key, type from outbox');
    expect(rows).toEqual([{ key: null, type: 'github.organization.member_added' }]);
  });
});

describe('what is refused writes nothing', () => {
  const body = JSON.stringify(HELLO);
  afterEach(async () => {
    expect(await counts()).toEqual([0, 0, 0]);
    expect(faults).toEqual([]);
  });

  it.each([
    ['another secret', { 'x-hub-signature-256': `sha256=${'0'.repeat(64)}` }],
    ['a shorter signature', { 'x-hub-signature-256': 'sha256=00' }],
    ['none', { 'x-hub-signature-256': '' }],
  ])('401: signed with %s', async (_what, headers) => {
    expect((await send(body, { headers })).status).toBe(401);
  });

  it('401: another body than was signed, or a signature that is not there', async () => {
    expect(
      (await send(`${body} `, { headers: { 'x-hub-signature-256': await sign(SECRET, body) } })).status,
    ).toBe(401);
    const response = await fetch(app.url, { method: 'POST', body });
    expect(response.status).toBe(401);
  });

  it.each([
    ['no JSON', 'payload=%7B%7D', {}],
    ['no object', '[1]', {}],
    ['no id', body, { 'x-github-delivery': '' }],
    ['no event', body, { 'x-github-event': '' }],
  ])('400: %s', async (_what, text, headers) => {
    expect((await send(text, { headers })).status).toBe(400);
  });

  it('413: a body that says that it is too large', async () => {
    expect((await send('x'.repeat(MAX_BYTES + 1))).status).toBe(413);
  });

  it('413: a body that does not say how large it is', async () => {
    const status = await new Promise((resolve, reject) => {
      const outgoing = request(app.url, { method: 'POST', headers: { 'transfer-encoding': 'chunked' } });
      outgoing.once('response', (response) => resolve(response.resume().statusCode));
      outgoing.once('error', reject);
      for (let sent = 0; sent <= MAX_BYTES; sent += 10_000) outgoing.write('x'.repeat(10_000));
    });
    expect(status).toBe(413);
  });
});

describe('when the database fails', () => {
  it('an event that the outbox refuses takes the whole change with it', async () => {
    await pool.query(`alter table outbox add constraint no_issues check (type not like 'github.issues.%')`);
    const id = randomUUID();
    const refused = await send(JSON.stringify(HELLO), { id });
    await pool.query('alter table outbox drop constraint no_issues');

    expect(refused.status).toBe(500);
    expect(faults).toMatchObject([{ code: '23514' }]);
    expect(await counts()).toEqual([0, 0, 0]);
    expect((await send(JSON.stringify(HELLO), { id })).status).toBe(202);
  });

  it('a commit that fails leaves neither the change nor the event', async () => {
    await pool.query(`
      create function no_commit() returns trigger language plpgsql as
        $$ begin raise exception 'not today' using errcode = 'serialization_failure'; end $$;
      create constraint trigger no_commit after insert on delivery
        deferrable initially deferred for each row execute function no_commit()`);
    const id = randomUUID();
    const failed = await send(JSON.stringify(HELLO), { id });
    await pool.query('drop function no_commit() cascade');

    expect(failed.status).toBe(503);
    expect(faults).toMatchObject([{ code: '40001' }]);
    expect(await counts()).toEqual([0, 0, 0]);
    expect((await send(JSON.stringify(HELLO), { id })).status).toBe(202);
  });

  it('503 when nothing listens there', async () => {
    const { port, crash } = await serve({ pool, onFault });
    await crash();
    const nowhere = new pg.Pool({ connectionString: `postgres://nobody@127.0.0.1:${port}/none` });
    const other = await serve({ pool: nowhere, onFault });
    expect((await send(JSON.stringify(HELLO), { to: other.url })).status).toBe(503);
    expect(faults).toMatchObject([{ code: 'ECONNREFUSED' }]);
    await other.crash();
    await nowhere.end();
  });

  it('503 when the connection dies in the middle of the transaction; the same delivery then goes through', async () => {
    expect((await send(JSON.stringify(HELLO))).status).toBe(202);
    const holder = await pool.connect();
    await holder.query('begin');
    await holder.query('select 1 from repository for update');

    const id = randomUUID();
    const cut = send(JSON.stringify(HELLO), { id });
    const killed = await until('the transaction waits for the row and is killed', async () => {
      const { rows } = await pool.query<{ killed: boolean }>(
        `select pg_terminate_backend(pid) as killed from pg_stat_activity
         where datname = current_database() and wait_event_type = 'Lock'`,
      );
      return rows[0]?.killed;
    });
    const { status } = await cut;
    await holder.query('rollback');
    holder.release();

    expect([killed, status]).toEqual([true, 503]);
    expect(await counts()).toEqual([1, 1, 1]);
    expect((await send(JSON.stringify(HELLO), { id })).status).toBe(202);
    expect(await counts()).toEqual([2, 1, 2]);
  });
});
