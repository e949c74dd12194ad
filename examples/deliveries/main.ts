import type { AddressInfo } from 'node:net';
import { createAdaptorServer, type ServerType } from '@hono/node-server';
import pg from 'pg';
import { z } from 'zod';
import { readOwnSettings } from '../../src/runtime/config.js';
import { runProcess, type ProcessContext, type Service } from '../../src/runtime/process.js';
import { createApp, DEFAULT_MAX_BYTES } from './app.js';
import { migrateTables } from './tables.js';

const wholeNumber = (preset: number, max: number): z.ZodType<number> =>
  z.string().regex(/^\d+$/).transform(Number).pipe(z.number().max(max)).default(preset);

const settings = z.object({
  DELIVERIES_HOST: z.string().min(1).default('127.0.0.1'),
  DELIVERIES_PORT: wholeNumber(4_000, 65_535),
  DELIVERIES_MAX_BYTES: wholeNumber(DEFAULT_MAX_BYTES, DEFAULT_MAX_BYTES),
  GITHUB_WEBHOOK_SECRET: z.string().min(1),
});

await runProcess({
  name: 'deliveries',
  needs: ['DATABASE_URL'],
  knownSettings: Object.keys(settings.shape),
  health: false,
  start,
});

async function start({ config, env, log }: ProcessContext<'DATABASE_URL'>): Promise<Service> {
  const own = readOwnSettings(env, settings, 'deliveries');
  const pool = openPool(config.DATABASE_URL);
  // Without a listener the error of an idle connection would end the process.
  pool.on('error', (err) => log.warn({ event: 'deliveries.connection.lost', err }, 'a connection was lost'));
  await migrateTables(pool);

  const app = createApp({
    pool,
    secret: own.GITHUB_WEBHOOK_SECRET,
    maxBytes: own.DELIVERIES_MAX_BYTES,
    onFault: (err) => log.error({ event: 'deliveries.not-stored', err }, 'a delivery was not stored'),
  });
  const server = createAdaptorServer({ fetch: app.fetch });
  const { address, port } = await listen(server, own.DELIVERIES_PORT, own.DELIVERIES_HOST);
  log.info({ event: 'deliveries.listening', host: address, port }, 'takes deliveries at /webhooks/github');
  return {
    ready: () => undefined,
    stop: async () => {
      // Takes no new connection, drops idle ones, and waits for the requests under way.
      await new Promise((resolve) => server.close(resolve));
      await pool.end();
    },
  };
}

/** Every wait has an end: a database that hangs must become a 503 before GitHub gives up (10 s). */
function openPool(connectionString: string): pg.Pool {
  return new pg.Pool({
    connectionString,
    max: 10,
    connectionTimeoutMillis: 3_000,
    lock_timeout: 3_000,
    statement_timeout: 5_000,
    query_timeout: 6_000,
    idle_in_transaction_session_timeout: 10_000,
    keepAlive: true,
    application_name: 'deliveries',
  });
}

function listen(server: ServerType, port: number, host: string): Promise<AddressInfo> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => {
      server.off('error', reject);
      resolve(server.address() as AddressInfo);
    });
  });
}
