import { DEDUPE_WINDOW_FIX, dedupeWindowFault, type DedupeWindow } from '../inbox/index.js';
import type { MigrationFacts, ServerFacts, TableFacts, VacuumHolder } from '../outbox/index.js';
import { count, span } from './table.js';

/** One finding: what was looked at, what was found, and what to do about it. `info` is neither good nor bad. */
export interface Check {
  readonly name: string;
  readonly verdict: 'ok' | 'info' | 'warn' | 'fail';
  readonly says: string;
  readonly fix?: string;
}

const OLDEST_SERVER = 140_000;
/** From the migration: without them a busy outbox is vacuumed by its share and not by its count. */
const TABLE_OPTIONS = {
  autovacuum_vacuum_scale_factor: '0',
  autovacuum_vacuum_threshold: '1000',
  autovacuum_vacuum_cost_delay: '0',
} as const;
const MANY_DEAD = 50_000;
/** A transaction that is open for so long is no statement under way any more. */
const OLD_SECONDS = 60;
const VERY_OLD_SECONDS = 3_600;
/** A prepared transaction or a slot has no session: what counts is how far everybody else has gone on. */
const MANY_TRANSACTIONS = 100_000;
const STUCK_SECONDS = 60;

const ok = (name: string, says: string): Check => ({ name, verdict: 'ok', says });

export function checkVersion({ version, versionNumber }: ServerFacts): Check {
  const name = 'Postgres version';
  if (versionNumber >= OLDEST_SERVER) return ok(name, version);
  return { name, verdict: 'fail', says: `${version}; Twinbox needs 14 or newer`, fix: 'upgrade the server' };
}

export function checkWritable(
  { standby, readOnly, database, role }: ServerFacts,
  table: TableFacts | undefined,
): Check {
  const name = 'writable';
  if (standby)
    return {
      name,
      verdict: 'fail',
      says: 'the server is a standby',
      fix: 'point DATABASE_URL at the primary (several hosts in one address: add target_session_attrs=read-write)',
    };
  if (readOnly)
    return {
      name,
      verdict: 'fail',
      says: 'transactions are read-only',
      fix: `ALTER SYSTEM RESET default_transaction_read_only; SELECT pg_reload_conf(); and look for the same setting of database ${database} and role ${role}`,
    };
  const missing = table?.missingRights ?? [];
  if (missing.length > 0)
    return {
      name,
      verdict: 'fail',
      says: `role ${role} may not ${missing.join(', ')} in outbox`,
      fix: `GRANT ${missing.join(', ')} ON outbox TO ${role}`,
    };
  return ok(name, `${database} as ${role}`);
}

export function checkMigrations({ missing, changed, unknown }: MigrationFacts): Check {
  const name = 'migrated';
  if (changed.length > 0)
    return {
      name,
      verdict: 'fail',
      says: `applied in another form than this version has: ${changed.join(', ')}`,
      fix: 'put the files back as they were; a change is a new file',
    };
  if (missing.length > 0)
    return { name, verdict: 'fail', says: `not applied: ${missing.join(', ')}`, fix: 'twinbox migrate' };
  if (unknown.length > 0)
    return {
      name,
      verdict: 'warn',
      says: `applied by another version: ${unknown.join(', ')}`,
      fix: 'run the version that brought them',
    };
  return ok(name, 'all files');
}

export function checkUnderWay({ underWay }: MigrationFacts): Check {
  const name = 'migrations under way';
  const holder = underWay.find(({ holds }) => holds);
  if (holder === undefined) return ok(name, 'none');
  const waiting = underWay.length - 1;
  const says = `pid ${holder.pid} for ${span(holder.seconds)}${waiting === 0 ? '' : `, ${waiting} waiting`}`;
  if (holder.seconds < STUCK_SECONDS) return { name, verdict: 'info', says };
  return {
    name,
    verdict: 'warn',
    says,
    fix: `see what it waits for: SELECT pg_blocking_pids(${holder.pid}); if its process is gone: SELECT pg_terminate_backend(${holder.pid})`,
  };
}

export function checkAutovacuum({ autovacuum }: ServerFacts, table: TableFacts | undefined): Check {
  const name = 'autovacuum of outbox';
  if (!autovacuum)
    return {
      name,
      verdict: 'fail',
      says: 'autovacuum or track_counts is off in this server: dead rows are never removed',
      fix: 'ALTER SYSTEM SET autovacuum = on; ALTER SYSTEM SET track_counts = on; SELECT pg_reload_conf()',
    };
  if (table === undefined)
    return { name, verdict: 'fail', says: 'there is no outbox', fix: 'twinbox migrate' };
  if (table.options.some((option) => /^autovacuum_enabled=(false|off|no|0)$/i.test(option)))
    return {
      name,
      verdict: 'fail',
      says: 'switched off for this table',
      fix: 'ALTER TABLE outbox RESET (autovacuum_enabled)',
    };
  const wrong = Object.entries(TABLE_OPTIONS).filter(
    ([option, value]) => !table.options.some((found) => sameOption(found, option, value)),
  );
  if (wrong.length === 0) return ok(name, 'as migrated');
  return {
    name,
    verdict: 'warn',
    says: `not as migrated: ${wrong.map(([option]) => option).join(', ')}`,
    fix: `ALTER TABLE outbox SET (${wrong.map(([option, value]) => `${option} = ${value}`).join(', ')})`,
  };
}

function sameOption(found: string, option: string, value: string): boolean {
  const [name, is] = found.split('=');
  return name === option && Number(is) === Number(value);
}

export function checkDeadRows(table: TableFacts | undefined): Check {
  const name = 'dead rows of outbox';
  if (table === undefined) return { name, verdict: 'info', says: 'there is no outbox' };
  const { deadRows, liveRows, lastVacuum } = table;
  const says = `${deadRows} dead, ${liveRows} live; last vacuum ${lastVacuum ?? 'never'}`;
  if (deadRows < MANY_DEAD) return ok(name, says);
  return {
    name,
    verdict: 'warn',
    says,
    fix: 'end what holds back vacuum (next check); if nothing does: VACUUM outbox',
  };
}

export function checkDedupeWindow(window: DedupeWindow): Check {
  const name = 'dedupe window';
  const fault = dedupeWindowFault(window);
  if (fault !== undefined) return { name, verdict: 'warn', says: fault, fix: DEDUPE_WINDOW_FIX };
  return ok(name, 'the inbox remembers for longer than the outbox can publish again');
}

/** @param holders the one that holds the most first */
export function checkVacuumHolders(holders: readonly VacuumHolder[]): Check {
  const name = 'what holds back vacuum';
  const worst = [...holders].sort((a, b) => rank(b) - rank(a))[0];
  if (worst === undefined) return ok(name, 'nothing');
  const more = holders.length === 1 ? '' : `; and ${count(holders.length - 1, 'other')} (--json shows all)`;
  const says = `${describeHolder(worst)}${more}`;
  const verdict = (['ok', 'warn', 'fail'] as const)[rank(worst)] ?? 'fail';
  return verdict === 'ok' ? { name, verdict, says } : { name, verdict, says, fix: fixOf(worst) };
}

/** 0 is normal, 1 wants a look, 2 harms. */
function rank({ seconds, transactions, kind }: VacuumHolder): number {
  if (seconds !== null && kind !== 'standby')
    return seconds < OLD_SECONDS ? 0 : seconds < VERY_OLD_SECONDS ? 1 : 2;
  return transactions < MANY_TRANSACTIONS ? 0 : transactions < 10 * MANY_TRANSACTIONS ? 1 : 2;
}

function describeHolder({
  kind,
  pid,
  name,
  state,
  transactions,
  seconds,
  queryStart,
  query,
}: VacuumHolder): string {
  const what = {
    transaction: 'a transaction',
    prepared: 'a prepared transaction',
    slot: 'a replication slot',
    standby: 'a standby (hot_standby_feedback)',
  }[kind];
  return [
    what,
    ...(pid === null ? [] : [`pid ${pid}`]),
    ...(name === null ? [] : [JSON.stringify(name)]),
    ...(state === null ? ['state not shown (grant pg_monitor)'] : [state]),
    ...(seconds === null ? [] : [`open for ${span(seconds)}`]),
    `${count(transactions, 'transaction')} behind`,
    ...(query === null || query === ''
      ? []
      : [`its last statement${queryStart === null ? '' : ` (${queryStart})`}: ${query}`]),
  ].join(', ');
}

function fixOf({ kind, pid, name }: VacuumHolder): string {
  switch (kind) {
    case 'transaction':
      return `end it where it was begun, or SELECT pg_terminate_backend(${pid ?? 0}); against the next one: idle_in_transaction_session_timeout`;
    case 'prepared':
      return `COMMIT PREPARED or ROLLBACK PREPARED '${(name ?? '').replaceAll("'", "''")}', as its transaction manager says`;
    case 'slot':
      return `start its consumer, or SELECT pg_drop_replication_slot('${name ?? ''}')`;
    case 'standby':
      return 'end the long query on the standby, or set hot_standby_feedback = off there';
  }
}

export function checkPooler(fault: string | undefined): Check {
  const name = 'direct session';
  if (fault === undefined) return ok(name, 'a connection is a session');
  return {
    name,
    verdict: 'fail',
    says: fault,
    fix: 'DATABASE_URL = the address of Postgres itself, or of a pool in session mode',
  };
}

/** Nothing here depends on the host's clock; it explains times that look wrong. */
export function checkClock({ skewMs, skewUncertaintyMs }: ServerFacts): Check {
  const ahead = Math.round(skewMs);
  return {
    name: 'clock of Postgres',
    verdict: 'info',
    says: `${Math.abs(ahead)} ms ${ahead >= 0 ? 'ahead of' : 'behind'} this machine's, ± ${Math.ceil(skewUncertaintyMs)} ms`,
  };
}
