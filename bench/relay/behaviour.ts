import type pg from 'pg';
import { residentMb } from '../cpu.js';
import { median, percentile, round, sleep } from '../rounds.js';
import { BODY } from '../stores.js';
import { backlogRun, type Backlog } from './drain.js';

/** Resident memory of the relay over so many messages, after one backlog of warm-up; medians of the first and last tenth. */
export async function memoryOver(
  backlog: Backlog,
  messages: number,
): Promise<{ start: number; end: number; min: number; max: number; messages: number }> {
  await backlogRun(backlog);
  const samples: number[] = [];
  const timer = setInterval(() => samples.push(residentMb(backlog.relay.pid)), 200);
  for (let done = 0; done < messages; done += backlog.rows) await backlogRun(backlog);
  clearInterval(timer);
  const tenth = Math.max(1, Math.floor(samples.length / 10));
  return {
    start: round(median(samples.slice(0, tenth)), 1),
    end: round(median(samples.slice(-tenth)), 1),
    min: round(Math.min(...samples), 1),
    max: round(Math.max(...samples), 1),
    messages,
  };
}

/** Lone events at an even pace: from INSERT to mark by Postgres' clock, which has the commit and the mark in it. */
export async function latencyAt(
  pool: pg.Pool,
  eventsPerSecond: number,
  seconds: number,
): Promise<{ p50: number; p99: number; eventsPerSecond: number }> {
  await pool.query('TRUNCATE outbox');
  const insert = async (): Promise<void> => {
    await pool.query({
      name: 'insert',
      text: `INSERT INTO outbox (type, body) VALUES ('bench.event', $1)`,
      values: [BODY],
    });
  };
  const began = performance.now();
  for (let sent = 0; sent < eventsPerSecond * seconds; sent += 1) {
    await sleep(began + (sent * 1_000) / eventsPerSecond - performance.now());
    await insert();
  }
  await sleep(1_000);
  const { rows } = await pool.query<{ ms: number | null }>(
    `SELECT (extract(epoch FROM published_at - created_at) * 1000)::float8 AS ms FROM outbox`,
  );
  const all = rows.map(({ ms }) => ms ?? Infinity);
  return { p50: round(percentile(all, 0.5), 1), p99: round(percentile(all, 0.99), 1), eventsPerSecond };
}

/** Statements a second on the database of an idle relay, once it has been idle for 10 s; our own two left out. */
export async function idleStatements(pool: pg.Pool): Promise<number> {
  await pool.query('TRUNCATE outbox');
  await sleep(10_000);
  const committed = async (): Promise<number> => {
    const { rows } = await pool.query<{ count: number }>(
      'SELECT xact_commit::int AS count FROM pg_stat_database WHERE datname = current_database()',
    );
    return rows[0]?.count ?? NaN;
  };
  const SECONDS = 20;
  const before = await committed();
  await sleep(SECONDS * 1_000);
  return round(((await committed()) - before - 1) / SECONDS, 2);
}
