import pg from 'pg';
import { bounded } from '../runtime/loop.js';

export interface OperatorSession {
  readonly client: pg.Client;
  close(): Promise<void>;
}

export interface OperatorOptions {
  /** How long the server works on one statement. */
  readonly statementMs: number;
  /** How long a statement waits for somebody else's lock. */
  readonly lockMs: number;
}

/** A person waits for the answer: long enough for a big table, short enough to be told. */
const DEFAULTS: OperatorOptions = { statementMs: 60_000, lockMs: 2_000 };

/**
 * A session for a command that a person runs, with the planner's freedom that a relay does not have.
 * @throws what connecting throws, within 6 seconds
 */
export async function openOperatorSession(
  databaseUrl: string,
  command: string,
  options: Partial<OperatorOptions> = {},
): Promise<OperatorSession> {
  const { statementMs, lockMs } = { ...DEFAULTS, ...options };
  const session = await openBareSession(databaseUrl, command, statementMs + 2_000);
  try {
    await session.client.query(`SET statement_timeout = ${statementMs}; SET lock_timeout = ${lockMs}`);
  } catch (error) {
    await session.close();
    throw error;
  }
  return session;
}

/**
 * A session without a setting of its own, which even a pooler in transaction mode passes on to nobody.
 * @param answerMs after this a statement is given up on this side
 */
export async function openBareSession(
  databaseUrl: string,
  command: string,
  answerMs: number,
): Promise<OperatorSession> {
  const client = new pg.Client({
    connectionString: databaseUrl,
    application_name: `twinbox ${command}`,
    connectionTimeoutMillis: Math.min(5_000, answerMs),
    keepAlive: true,
    query_timeout: answerMs,
  });
  client.on('error', () => undefined); // the query under way rejects; an unheard 'error' would end the process
  const close = async (): Promise<void> => {
    await bounded('closing the Postgres session', 1_000, client.end()).catch(() => {
      (client as unknown as { connection: { stream: { destroy(): void } } }).connection.stream.destroy();
    });
  };
  try {
    await bounded('connecting to Postgres', Math.min(5_000, answerMs) + 500, client.connect());
  } catch (error) {
    await close();
    throw error;
  }
  return { client, close };
}
