import { parseArgs } from 'node:util';
import {
  checkDirectSession,
  openBareSession,
  readBacklog,
  readMigrationFacts,
  readServerFacts,
  readTableFacts,
  readVacuumHolders,
  type VacuumHolder,
} from '../outbox/index.js';
import { readConfig } from '../runtime/config.js';
import type { Config } from '../runtime/settings.js';
import { ConfigurationError, describe } from '../runtime/errors.js';
import { usageOf, withUsage, type CommandContext } from './command.js';
import {
  checkAutovacuum,
  checkClock,
  checkDeadRows,
  checkDedupeWindow,
  checkMigrations,
  checkPooler,
  checkUnderWay,
  checkVacuumHolders,
  checkVersion,
  checkWritable,
  type Check,
} from './doctor-checks.js';
import { explainPostgres } from './postgres-fault.js';
import { plain } from './table.js';

const ANSWER_MS = 5_000;

const USAGE = `twinbox doctor [--json]

Looks at the Postgres of the outbox: version, rights, migrations, autovacuum, dead rows and what holds back vacuum, a pooler in
between, the clock, and whether the inbox remembers for longer than a message can come again. Every finding that is not ok names its fix. It changes nothing.
Exit code: 0 nothing failed (there may be warnings) · 1 something failed · 2 usage · 78 configuration.
`;

/** `twinbox doctor`. @returns the exit code */
export function doctor(context: CommandContext): Promise<number> {
  return withUsage(USAGE, context, () => run(context));
}

async function run({ argv, env, stdout }: CommandContext): Promise<number> {
  const { values } = usageOf(() =>
    parseArgs({ args: [...argv], options: { json: { type: 'boolean', default: false } } }),
  );
  const config = readConfig(env, ['DATABASE_URL'], { process: 'twinbox doctor' });
  const { checks, holders } = await examine(config);
  const failed = checks.some(({ verdict }) => verdict === 'fail');
  if (values.json) stdout.write(`${JSON.stringify({ ok: !failed, checks, vacuumHolders: holders })}\n`);
  else {
    const width = Math.max(...checks.map(({ name }) => name.length));
    for (const { name, verdict, says, fix } of checks) {
      stdout.write(`${verdict.padEnd(4)}  ${name.padEnd(width)}  ${plain(says)}\n`);
      if (fix !== undefined) stdout.write(`${' '.repeat(width + 8)}fix: ${plain(fix)}\n`);
    }
  }
  return failed ? 1 : 0;
}

async function examine(
  config: Config<'DATABASE_URL'>,
): Promise<{ checks: Check[]; holders: VacuumHolder[] }> {
  const url = config.DATABASE_URL;
  let session;
  try {
    session = await openBareSession(url, 'doctor', ANSWER_MS);
  } catch (error) {
    const says = explainPostgres(error) ?? describe(error, 300);
    const fix = 'the server must be up, and host, port, user and password of DATABASE_URL right';
    return { checks: [{ name: 'Postgres', verdict: 'fail', says, fix }], holders: [] };
  }
  try {
    const server = await readServerFacts(session.client);
    const table = await readTableFacts(session.client);
    const migrations = await readMigrationFacts(session.client);
    const holders = await readVacuumHolders(session.client);
    const backlogSeconds = table === undefined ? 0 : ((await readBacklog(session.client)).oldestSeconds ?? 0);
    return {
      holders,
      checks: [
        checkVersion(server),
        await lookForPooler(url),
        checkWritable(server, table),
        checkMigrations(migrations),
        checkUnderWay(migrations),
        checkAutovacuum(server, table),
        checkDeadRows(table),
        checkVacuumHolders(holders),
        checkClock(server),
        checkDedupeWindow({
          retentionSeconds: config.INBOX_RETENTION_SECONDS,
          replaySeconds: config.OUTBOX_RETENTION_DAYS * 86_400,
          backlogSeconds,
        }),
      ],
    };
  } finally {
    await session.close();
  }
}

async function lookForPooler(url: string): Promise<Check> {
  try {
    await checkDirectSession(url);
    return checkPooler(undefined);
  } catch (error) {
    if (error instanceof ConfigurationError) return checkPooler(error.message);
    // It needs two connections more.
    const says = `could not be looked at (${describe(error, 200)})`;
    return { name: 'direct session', verdict: 'warn', says, fix: 'free a connection, and ask again' };
  }
}
