import { describe } from '../runtime/errors.js';

/** What Postgres or the way to it says, by SQLSTATE or system code, and what the operator can do about it. */
const FIX: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nothing listens there: is the server up, and are host and port of DATABASE_URL right?',
  ENOTFOUND: 'there is no such host: look at DATABASE_URL',
  EHOSTUNREACH: 'no way leads there: look at DATABASE_URL and the network',
  ETIMEDOUT: 'nobody answers: look at DATABASE_URL, the network and its firewalls',
  '28P01': 'user or password of DATABASE_URL is wrong',
  '28000': 'the server does not let this user in: look at DATABASE_URL and pg_hba.conf',
  '3D000': 'create the database, or correct DATABASE_URL',
  '53300': 'the server has no connection left: raise max_connections, or end what holds them',
  '57P03': 'the server is starting or stopping: try again',
  '42501': 'GRANT the right to the role of DATABASE_URL (twinbox doctor shows what is missing)',
  '25006': 'the server is read-only: point DATABASE_URL at the primary (twinbox doctor shows more)',
  '55P03':
    'another session holds the table or its rows: see who with SELECT pid, state, query FROM pg_stat_activity WHERE pid = ANY(SELECT unnest(pg_blocking_pids(pid)) FROM pg_stat_activity); what was done so far stands in outbox_audit, and the same command does the rest',
  '57014': 'it took too long: narrow it with --from, --to or ids',
};

/** The fault with its fix; undefined where nothing is known of it. */
export function explainPostgres(error: unknown): string | undefined {
  const { code } = error as { code?: unknown };
  const fix = typeof code === 'string' ? FIX[code] : undefined;
  return fix === undefined ? undefined : `Postgres: ${describe(error, 300)}; ${fix}`;
}
