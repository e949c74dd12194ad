#!/usr/bin/env node
import { ConfigurationError, describe, EXIT_CONFIG } from '../runtime/errors.js';
import type { CommandContext } from './command.js';
import { dlq } from './dlq.js';
import { doctor } from './doctor.js';
import { format } from './format.js';
import { migrate } from './migrate.js';
import { outbox } from './outbox.js';
import { republish } from './republish.js';
import { parseStartArgs, start } from './start.js';
import { status } from './status.js';
import { topology } from './topology.js';

const USAGE = `twinbox <command>

  start [web=1,notify=3]   run the process types of the Procfile (start --help)
  migrate                  bring Postgres and MongoDB to what this version needs
  topology                 plan, check or apply what has to stand on the broker (topology --help)
  status                   every hop on one page, and whether somebody is needed
  outbox                   list, show, retry and purge rows of the outbox (outbox --help)
  republish                publish a window of rows once more, on purpose (republish --help)
  format detect            how ingest understands a message that is pasted (format --help)
  dlq                      list, show, replay, export and purge an actor's dead letters (dlq --help)
  doctor                   look at the Postgres of the outbox: what is wrong, and how to mend it
`;

/** Runs one command. @returns the exit code: 0 done, 1 failed, 2 usage, 78 configuration */
async function run(argv: readonly string[]): Promise<number> {
  const [command, ...rest] = argv;
  switch (command) {
    case 'start': {
      const args = parseStartArgs(rest);
      if ('usage' in args) {
        process.stderr.write(args.problem === undefined ? args.usage : `${args.problem}\n\n${args.usage}`);
        return args.problem === undefined ? 0 : 2;
      }
      return start({
        ...args,
        cwd: process.cwd(),
        env: process.env,
        stdout: process.stdout,
        stderr: process.stderr,
        signal: new AbortController().signal, // start listens to the process's signals itself
      });
    }
    case 'migrate':
      for (const line of await migrate(process.env)) process.stdout.write(`${line}\n`);
      return 0;
    case 'outbox':
      return outbox(contextOf(rest));
    case 'republish':
      return republish(contextOf(rest));
    case 'dlq':
      return dlq(contextOf(rest));
    case 'topology':
      return topology(contextOf(rest));
    case 'status':
      return status(contextOf(rest));
    case 'format':
      return format(contextOf(rest), process.stdin);
    case 'doctor':
      return doctor(contextOf(rest));
    case undefined:
    case '--help':
    case 'help':
      process.stdout.write(USAGE);
      return command === undefined ? 2 : 0;
    default:
      process.stderr.write(`there is no command ${JSON.stringify(command)}\n\n${USAGE}`);
      return 2;
  }
}

function contextOf(argv: readonly string[]): CommandContext {
  // Whoever reads may go first (`| head`): what is being done is done all the same.
  process.stdout.on('error', () => undefined);
  return { argv, env: process.env, stdout: process.stdout, stderr: process.stderr };
}

try {
  process.exitCode = await run(process.argv.slice(2));
} catch (thrown) {
  process.stderr.write(
    `twinbox: ${thrown instanceof ConfigurationError ? thrown.message : describe(thrown)}\n`,
  );
  process.exitCode = thrown instanceof ConfigurationError ? EXIT_CONFIG : 1;
}
