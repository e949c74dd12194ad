import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { play } from '../../examples/deliveries/player.js';
import { migrateTables } from '../../examples/deliveries/tables.js';
import { migrateOutbox } from '../../src/outbox/index.js';
import { until } from '../support/until.js';
import { SECRET, serve, type RunningApp } from './deliveries-server.js';
import { freshDatabase } from '../support/stores.js';

let database: Awaited<ReturnType<typeof freshDatabase>>;
let pool: pg.Pool;
let app: RunningApp;

const outboxRows = async () =>
  (await pool.query<{ n: number }>('select count(*)::int as n from outbox')).rows[0]!.n;

beforeAll(async () => {
  database = await freshDatabase();
  pool = new pg.Pool({ connectionString: database.url });
  pool.on('error', () => undefined);
  await migrateOutbox(database.url);
  await migrateTables(pool);
});

afterAll(async () => {
  await pool.end();
  await database.drop();
});

beforeEach(async () => {
  await pool.query('truncate delivery, repository, outbox');
  app = await serve({ pool });
});

afterEach(() => app.crash());

describe('the player', () => {
  it('sends the 329 payloads, each stored once, and goes round them with new ids', async () => {
    let last = { accepted: 0, redelivered: 0, refused: 0 };
    const played = await play({
      url: app.url,
      secret: SECRET,
      count: 400,
      redeliveries: 0.25,
      onProgress: (progress) => (last = progress),
    });
    expect(played).toMatchObject({ refused: 0, unknown: [] });
    expect(new Set(played.deliveries).size).toBe(400);
    expect(played.redelivered).toBeGreaterThan(50);
    expect(last).toEqual({ accepted: 400, redelivered: played.redelivered, refused: 0 });

    expect(await outboxRows()).toBe(400);
    const { rows } = await pool.query(
      `select count(*) filter (where key is null)::int as keyless, count(distinct d.id)::int as deliveries,
              (select sum(deliveries)::int from repository) as counted
       from outbox join delivery d using (event_id) where d.id = any($1)`,
      [played.deliveries],
    );
    const { keyless, deliveries, counted } = rows[0] as Record<string, number>;
    expect(deliveries).toBe(400);
    expect(keyless).toBeGreaterThanOrEqual(49);
    expect(counted! + keyless!).toBe(400);
  });

  it('counts what is refused', async () => {
    const played = await play({ url: app.url, secret: 'not the secret', count: 10, redeliveries: 0 });
    expect(played).toMatchObject({ deliveries: [], redelivered: 0, refused: 10, unknown: [] });
    expect(played.refusal).toMatch(/^401 /);
  });

  it('loses nothing and doubles nothing over a crash of the application', async () => {
    let accepted = 0;
    const playing = play({
      url: app.url,
      secret: SECRET,
      count: 300,
      onProgress: (progress) => (accepted = progress.accepted),
    });
    await until('a third is stored', () => accepted >= 100);
    await app.crash();
    await until('nobody answers', () =>
      fetch(app.url).then(
        () => false,
        () => true,
      ),
    );
    const before = accepted;
    expect(before).toBeLessThan(300);
    app = await serve({ pool, port: app.port });

    const played = await playing;
    expect(played).toMatchObject({ refused: 0, unknown: [] });
    expect(new Set(played.deliveries).size).toBe(300);
    expect(await outboxRows()).toBe(300);
  });

  it('ends on an abort, and says which deliveries are unknown', async () => {
    const abort = new AbortController();
    await app.crash();
    const playing = play({
      url: app.url,
      secret: SECRET,
      count: 300,
      concurrency: 4,
      redeliveries: 0,
      signal: abort.signal,
    });
    abort.abort();
    const played = await playing;
    expect(played.deliveries).toEqual([]);
    expect(played.unknown).toHaveLength(4);
    app = await serve({ pool });
  });
});
