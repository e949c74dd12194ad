#!/usr/bin/env node
import { ConfigurationError, describe, EXIT_CONFIG } from '../runtime/errors.js';
import { migrate } from './migrate.js';
import { parseStartArgs, start } from './start.js';

const USAGE = `twinbox <command>

  start [web=1,notify=3]   run the process types of the Procfile (start --help)
  migrate                  bring Postgres and MongoDB to what this version needs
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

try {
  process.exitCode = await run(process.argv.slice(2));
} catch (thrown) {
  process.stderr.write(
    `twinbox: ${thrown instanceof ConfigurationError ? thrown.message : describe(thrown)}\n`,
  );
  process.exitCode = thrown instanceof ConfigurationError ? EXIT_CONFIG : 1;
}
