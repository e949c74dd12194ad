import { spawn, type ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import { sign } from '@octokit/webhooks-methods';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { migrateOutbox } from '../../src/outbox/index.js';
import { until } from '../support/until.js';
import { SECRET } from './deliveries-server.js';
import { freshDatabase } from '../support/stores.js';

const BODY = '{"action":"opened","repository":{"full_name":"octo/hello"}}';

let database: Awaited<ReturnType<typeof freshDatabase>>;
let pool: pg.Pool;

beforeAll(async () => {
  database = await freshDatabase();
  await migrateOutbox(database.url);
  pool = new pg.Pool({ connectionString: database.url });
  pool.on('error', () => undefined);
});

afterAll(async () => {
  await pool.end();
  await database.drop();
});

interface Run {
  readonly child: ChildProcess;
  readonly lines: string[];
  readonly errors: string[];
  readonly exited: Promise<number | null>;
}

function run(env: Record<string, string>): Run {
  const child = spawn(process.execPath, ['--import', 'tsx', 'examples/deliveries/main.ts'], {
    env: { PATH: process.env.PATH, DELIVERIES_PORT: '0', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const lines: string[] = [];
  const errors: string[] = [];
  createInterface({ input: child.stdout }).on('line', (line) => lines.push(line));
  createInterface({ input: child.stderr }).on('line', (line) => errors.push(line));
  const exited = new Promise<number | null>((resolve) => child.once('exit', resolve));
  return { child, lines, errors, exited };
}

const portOf = ({ lines }: Run) =>
  until('the application listens', () => {
    const line = lines.find((one) => one.includes('deliveries.listening'));
    return line === undefined ? undefined : (JSON.parse(line) as { port: number }).port;
  });

describe('the process of the example application', () => {
  it('answers what is under way before a SIGTERM ends it', async () => {
    const app = run({ DATABASE_URL: database.url, GITHUB_WEBHOOK_SECRET: SECRET });
    const url = `http://127.0.0.1:${await portOf(app)}/webhooks/github`;
    const post = async (id: string) => {
      const signature = await sign(SECRET, BODY);
      const headers = {
        'x-github-delivery': id,
        'x-github-event': 'issues',
        'x-hub-signature-256': signature,
      };
      return (await fetch(url, { method: 'POST', body: BODY, headers })).status;
    };
    expect(await post('first')).toBe(202);

    const holder = await pool.connect();
    await holder.query('begin');
    await holder.query('select 1 from repository for update');
    const second = post('second');
    await until('the second waits for the row', async () => {
      const { rows } = await pool.query(
        `select 1 from pg_stat_activity where application_name = 'deliveries'
         and datname = current_database() and wait_event_type = 'Lock'`,
      );
      return rows.length === 1;
    });
    app.child.kill('SIGTERM');
    await until('the stop has begun', () => app.lines.some((line) => line.includes('process.stopping')));
    await holder.query('commit');
    holder.release();

    expect(await second).toBe(202);
    expect(await app.exited).toBe(0);
    expect(app.lines.join('\n')).not.toContain(SECRET);
    const { rows } = await pool.query('select count(*)::int as n from outbox');
    expect(rows).toEqual([{ n: 2 }]);
  });

  it('says which setting is missing', async () => {
    const app = run({ DATABASE_URL: database.url });
    expect(await app.exited).toBe(78);
    expect(app.errors.join('\n')).toContain('GITHUB_WEBHOOK_SECRET');
  });
});
