import { randomUUID } from 'node:crypto';
import pg from 'pg';

export interface OwnDatabase {
  readonly url: string;
  drop(): Promise<void>;
}

/** A database for one test file alone, in the server of DATABASE_URL. */
export async function ownDatabase(): Promise<OwnDatabase> {
  const server = process.env.DATABASE_URL;
  if (server === undefined) throw new Error('DATABASE_URL is not set: run the tests with bin/test');
  const name = `test_${randomUUID().replaceAll('-', '')}`;
  await statement(server, `create database ${name}`);
  const url = new URL(server);
  url.pathname = `/${name}`;
  return { url: url.href, drop: () => statement(server, `drop database ${name} with (force)`) };
}

async function statement(connectionString: string, sql: string): Promise<void> {
  const client = new pg.Client({ connectionString });
  await client.connect();
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
}
