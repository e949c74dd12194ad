import { expect, test } from 'vitest';
import {
  checkAutovacuum,
  checkClock,
  checkDeadRows,
  checkMigrations,
  checkPooler,
  checkUnderWay,
  checkVacuumHolders,
  checkVersion,
  checkWritable,
  type Check,
} from '../../src/cli/doctor-checks.js';
import type { VacuumHolder } from '../../src/outbox/index.js';

const server = {
  version: '15.2',
  versionNumber: 150_002,
  database: 'app',
  role: 'relay',
  standby: false,
  readOnly: false,
  autovacuum: true,
  skewMs: -12.4,
  skewUncertaintyMs: 0.5,
};
const table = {
  options: [
    'autovacuum_vacuum_scale_factor=0',
    'autovacuum_vacuum_threshold=1000',
    'autovacuum_vacuum_cost_delay=0',
  ],
  missingRights: [],
  liveRows: 10,
  deadRows: 0,
  lastVacuum: null,
};
const migrations = { missing: [], changed: [], unknown: [], underWay: [] };
const holder: VacuumHolder = {
  kind: 'transaction',
  pid: 41,
  name: 'report',
  state: 'idle in transaction',
  transactions: 900,
  seconds: 61,
  queryStart: '2026-03-01T12:00:00Z',
  query: 'SELECT 1',
};

test('a server as it must be', () => {
  const checks = [
    checkVersion(server),
    checkPooler(undefined),
    checkWritable(server, table),
    checkMigrations(migrations),
    checkUnderWay(migrations),
    checkAutovacuum(server, table),
    checkDeadRows(table),
    checkVacuumHolders([]),
  ];
  expect(checks.map(({ verdict }) => verdict)).toEqual(checks.map(() => 'ok'));
  expect(checkClock(server)).toMatchObject({ verdict: 'info', says: "12 ms behind this machine's, ± 1 ms" });
});

test.each<[string, Check, Check['verdict'], string]>([
  ['too old', checkVersion({ ...server, version: '13.9', versionNumber: 130_009 }), 'fail', 'upgrade'],
  ['a standby', checkWritable({ ...server, standby: true }, table), 'fail', 'primary'],
  ['read-only', checkWritable({ ...server, readOnly: true }, table), 'fail', 'default_transaction_read_only'],
  [
    'a right is missing',
    checkWritable(server, { ...table, missingRights: ['UPDATE'] }),
    'fail',
    'GRANT UPDATE ON outbox TO relay',
  ],
  ['not migrated', checkMigrations({ ...migrations, missing: ['1.sql'] }), 'fail', 'twinbox migrate'],
  ['migrated otherwise', checkMigrations({ ...migrations, changed: ['1.sql'] }), 'fail', 'new file'],
  ['a newer one', checkMigrations({ ...migrations, unknown: ['9.sql'] }), 'warn', 'run the version'],
  [
    'a stuck migration',
    checkUnderWay({ ...migrations, underWay: [{ pid: 9, holds: true, seconds: 90 }] }),
    'warn',
    'pg_blocking_pids(9)',
  ],
  ['autovacuum off', checkAutovacuum({ ...server, autovacuum: false }, table), 'fail', 'ALTER SYSTEM'],
  [
    'off for the table',
    checkAutovacuum(server, { ...table, options: [...table.options, 'autovacuum_enabled=false'] }),
    'fail',
    'RESET (autovacuum_enabled)',
  ],
  [
    'a lost setting',
    checkAutovacuum(server, { ...table, options: table.options.slice(1) }),
    'warn',
    'ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0)',
  ],
  ['many dead rows', checkDeadRows({ ...table, deadRows: 60_000 }), 'warn', 'VACUUM outbox'],
  ['a pooler', checkPooler('DATABASE_URL leads through a pooler'), 'fail', 'session mode'],
  ['an old transaction', checkVacuumHolders([holder]), 'warn', 'pg_terminate_backend(41)'],
  ['a very old one', checkVacuumHolders([{ ...holder, seconds: 3_601 }]), 'fail', 'pg_terminate_backend(41)'],
  [
    'a prepared transaction',
    checkVacuumHolders([{ ...holder, kind: 'prepared', pid: null, name: "o'1" }]),
    'warn',
    "ROLLBACK PREPARED 'o''1'",
  ],
  [
    'an abandoned slot',
    checkVacuumHolders([{ ...holder, kind: 'slot', name: 's', seconds: null, transactions: 200_000 }]),
    'warn',
    "pg_drop_replication_slot('s')",
  ],
  [
    'a standby',
    checkVacuumHolders([{ ...holder, kind: 'standby', seconds: null, transactions: 2_000_000 }]),
    'fail',
    'hot_standby_feedback = off',
  ],
])('%s: told with the fix', (_, check, verdict, fix) => {
  expect(check.verdict).toBe(verdict);
  expect(check.fix).toContain(fix);
});

test('a short transaction is named and no fault; the worst of several is told', () => {
  const short = { ...holder, seconds: 3 };
  expect(checkVacuumHolders([short])).toMatchObject({ verdict: 'ok' });
  const { verdict, says } = checkVacuumHolders([short, { ...holder, pid: 42 }]);
  expect(verdict).toBe('warn');
  expect(says).toBe(
    'a transaction, pid 42, "report", idle in transaction, open for 61 s, 900 transactions behind, ' +
      'its last statement (2026-03-01T12:00:00Z): SELECT 1; and 1 other (--json shows all)',
  );
});
