import { parseArgs } from 'node:util';
import { openStack, SERVICE_NAMES } from './index.js';
import type { ServiceName, Stack } from './index.js';
import { buildSecantus } from './secantus.js';

const USAGE = `Private Postgres, RabbitMQ, Redis and MongoDB on loopback, for development, tests and the demo.

usage: npx tsx stack/main.ts <command> [--name NAME]

  start              bring up what is not running, print the URLs; they go on after this command
  stop               stop all in good order; the data stay
  kill <service>     SIGKILL to every process of it
  start <service>    start one alone, for example after kill
  restart <service>  stop it in good order and start it
  pause <service>    SIGSTOP to every process of it
  resume <service>   SIGCONT
  status [--json]    what runs
  logs <service>     what it printed
  env                the URLs, as KEY=value lines
  remove             stop all and delete the stack's data
  build              build the faster MongoDB server into the cache folder (about ten minutes, once)

services: ${SERVICE_NAMES.join(', ')}
--name NAME   which stack (default: dev); each has its own folder, ports, passwords and data
A server whose URL stands in DATABASE_URL, RABBITMQ_URL, REDIS_URL or MONGODB_URI is used as given and never stopped.
`;

const print = (text: string): void => void process.stdout.write(text.endsWith('\n') ? text : `${text}\n`);
const note = (line: string): void => void process.stderr.write(`${line}\n`);

class UsageError extends Error {}

const isService = (word: string): word is ServiceName => SERVICE_NAMES.some((name) => name === word);

const serviceIn = (words: string[]): ServiceName => {
  const [word] = words;
  if (word !== undefined && words.length === 1 && isService(word)) return word;
  throw new UsageError(
    `name one service: ${SERVICE_NAMES.join(', ')}${word === undefined ? '' : ` (not ${words.join(' ')})`}`,
  );
};

const nothingIn = (words: string[]): void => {
  if (words.length > 0) throw new UsageError(`unknown: ${words.join(' ')}`);
};

const envOf = (stack: Stack): string =>
  Object.entries(stack.urls())
    .map(([key, value]) => `${key}=${value}\n`)
    .join('');

const statusOf = async (stack: Stack, json: boolean): Promise<string> => {
  const all = await stack.status();
  if (json) return JSON.stringify(all, null, 2);
  return all
    .map(({ service, source, state, pids }) =>
      `${service.padEnd(9)} ${state.padEnd(8)} ${source.padEnd(8)} ${pids.length === 0 ? '' : `pid ${pids.join(' ')}`}`.trimEnd(),
    )
    .join('\n');
};

const act = async (command: string, words: string[], stack: Stack, json: boolean): Promise<void> => {
  switch (command) {
    case 'start':
      if (words.length > 0) return stack.startService(serviceIn(words));
      await stack.start();
      print(envOf(stack));
      return;
    case 'kill':
    case 'restart':
    case 'pause':
    case 'resume':
      return stack[command](serviceIn(words));
    case 'logs':
      print(stack.logs(serviceIn(words)));
      return;
  }
  nothingIn(words);
  switch (command) {
    case 'stop':
    case 'remove':
      return stack[command]();
    case 'status':
      print(await statusOf(stack, json));
      return;
    case 'env':
      print(envOf(stack));
      return;
    case 'build': {
      const program = await buildSecantus(note);
      if (program === undefined)
        throw new Error('no server was built: install cargo (Rust) and cmake, then try again');
      print(program);
      return;
    }
    default:
      throw new UsageError(`unknown command: ${command}`);
  }
};

const main = async (): Promise<void> => {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      name: { type: 'string', default: 'dev' },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  const [command, ...words] = positionals;
  if (values.help) {
    print(USAGE);
    return;
  }
  if (command === undefined) throw new UsageError('which command?');
  await act(command, words, openStack({ name: values.name, log: note }), values.json);
};

try {
  await main();
} catch (error) {
  const isUsage =
    error instanceof UsageError || (error as { code?: string }).code?.startsWith('ERR_PARSE_ARGS');
  note(error instanceof Error ? error.message : String(error));
  if (isUsage === true) note(`\n${USAGE}`);
  process.exitCode = isUsage === true ? 2 : 1;
}
