import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { receiveMail } from '../examples/deliveries/mailbox.js';
import { loadPayloads } from '../examples/deliveries/payloads.js';
import { play } from '../examples/deliveries/player.js';
import { openCatalog } from '../src/actor/index.js';
import { openStack } from '../stack/index.js';
import { openLedger, type Ledger } from './ledger.js';
import { startProcesses, type Processes } from './processes.js';
import { compare, type DemoResult } from './result.js';
import { createDisplay, resultLines, type Display } from './show.js';
import { topicMatches } from './topic.js';

const USAGE = `bin/demo                              set everything up, play the deliveries, stay until Ctrl-C
bin/demo --exit [--count N] [--json]  play N deliveries (329), print the result, stop everything;
                                      exit 0 only if nothing is missing or extra
`;
const ROOT = join(import.meta.dirname, '..');
/** Without any progress for so long, what is not processed counts as missing. */
const STALL_MS = 60_000;

interface Actor {
  readonly name: string;
  readonly subscribes: readonly string[];
}

async function main(argv: string[]): Promise<number> {
  const options = parse(argv);
  if (options === undefined) {
    process.stderr.write(USAGE);
    return 2;
  }
  const display = createDisplay(options.json ? process.stderr : process.stdout);
  const stopped = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.on(signal, () => stopped.abort(new Error(`stopped by ${signal}`)));
  const closers: (() => Promise<unknown>)[] = [];
  try {
    return await run(options, display, stopped, closers);
  } catch (error) {
    if (!stopped.signal.aborted) throw error;
    display.line((stopped.signal.reason as Error).message);
    return options.exit ? 1 : 0;
  } finally {
    display.line('stopping …');
    for (const close of closers.reverse()) await close();
  }
}

async function run(
  options: Options,
  display: Display,
  stopped: AbortController,
  closers: (() => Promise<unknown>)[],
): Promise<number> {
  const stack = openStack({ name: 'demo', attached: true, log: (line) => display.line(line) });
  closers.push(() => stack.stop());
  const urls = await unlessStopped(stack.start(), stopped.signal);
  const mailbox = await receiveMail({});
  closers.push(() => mailbox.close());
  const actors = await actorsOfPackage();

  const password = randomBytes(9).toString('base64url');
  const secret = randomBytes(16).toString('hex');
  display.line('starting the process types of the Procfile and the application …');
  const processes = await startProcesses({
    root: ROOT,
    folder: join(ROOT, '.stack', 'demo'),
    env: {
      ...process.env,
      ...urls,
      SMTP_URL: mailbox.url,
      WEB_USER: 'admin',
      WEB_PASSWORD: password,
      GITHUB_WEBHOOK_SECRET: secret,
      // A killed process is believed alive for a lease: shorter here than anyone would wait to see it recover.
      LEASE_MS: '10000',
      SWEEP_INTERVAL_MS: '2000',
      SWEEP_MIN_AGE_MS: '5000',
    },
    restart: !options.exit,
    onEnd: (what) =>
      stopped.abort(new Error(`${what} has ended, see ${join(ROOT, '.stack/demo/twinbox.log')}`)),
  });
  closers.push(() => processes.stop());

  const round = async (): Promise<boolean> => {
    const ledger = await openLedger(
      urls,
      actors.map(({ name }) => name),
    );
    try {
      const mailedBefore = new Set(mailbox.messages.keys());
      const began = performance.now();
      display.line(`playing ${options.count} deliveries …`);
      const playing = play({
        url: processes.webhookUrl,
        secret,
        count: options.count,
        signal: stopped.signal,
      });
      await untilProcessed(playing, ledger, actors, options.count, display, stopped.signal);
      const [sent, arrived, counted] = await Promise.all([ledger.sent(), ledger.arrived(), ledger.counted()]);
      const mails = new Map(
        [...mailbox.messages].flatMap(([id, { eventId, count }]) =>
          mailedBefore.has(id) ? [] : [[eventId ?? id, count]],
        ),
      );
      const seconds = (performance.now() - began) / 1000;
      const result = compare({
        sent,
        arrived,
        counted,
        mails,
        seconds,
        actorsOf: (type) => actorsFor(actors, type),
      });
      report(result, options, display);
      return result.sent === options.count && result.missing.length === 0 && result.extra.length === 0;
    } finally {
      await ledger.close();
    }
  };
  const complete = await round();
  if (options.exit) return complete ? 0 : 1;

  for (const line of whatToTry(processes, password)) display.line(line);
  for await (const _ of linesUntil(stopped.signal)) await round();
  return 0;
}

/** A line each time Enter is pressed, until `signal` aborts; without a keyboard, just the wait. */
async function* linesUntil(signal: AbortSignal): AsyncGenerator<string> {
  const aborted = new Promise<void>((resolve) =>
    signal.addEventListener('abort', () => resolve(), { once: true }),
  );
  if (!process.stdin.isTTY) {
    await aborted;
    return;
  }
  const input = createInterface({ input: process.stdin });
  void aborted.then(() => input.close());
  yield* input;
}

function report(result: DemoResult, { json }: Options, display: Display): void {
  if (json) process.stdout.write(`${JSON.stringify(result)}\n`);
  else for (const line of resultLines(result)) display.line(line);
}

/** Until every delivery is at its end, or nothing has moved for STALL_MS. */
async function untilProcessed(
  playing: ReturnType<typeof play>,
  ledger: Ledger,
  actors: readonly Actor[],
  count: number,
  display: Display,
  signal: AbortSignal,
): Promise<void> {
  const player = { done: false };
  void playing.finally(() => {
    player.done = true;
  });
  let documents = 0;
  let moved = performance.now();
  let before = '';
  for (;;) {
    signal.throwIfAborted();
    const progress = await ledger.progress();
    const now = JSON.stringify(progress);
    if (now !== before) moved = performance.now();
    before = now;
    if (progress.sent > 0)
      documents = (await ledger.sent()).reduce((sum, { type }) => sum + actorsFor(actors, type).length, 0);
    display.progress(progress, { sent: count, documents });
    const complete = player.done && progress.published >= progress.sent && progress.processed >= documents;
    if (complete || performance.now() - moved > STALL_MS) break;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  display.done();
  await playing;
}

const actorsFor = (actors: readonly Actor[], type: string): string[] =>
  actors
    .filter(({ subscribes }) => subscribes.some((pattern) => topicMatches(pattern, type)))
    .map(({ name }) => name);

async function actorsOfPackage(): Promise<Actor[]> {
  const catalog = await openCatalog(join(ROOT, 'dist/processors/index.js'));
  return Promise.all(catalog.map(async ({ load }) => load()));
}

function whatToTry({ consoleUrl, logFile }: Processes, password: string): string[] {
  return [
    '',
    `  console         ${consoleUrl}   login admin, password ${password}`,
    `  log             ${logFile}`,
    '',
    '  Enter plays the deliveries once more. Meanwhile, in another terminal:',
    '    pkill -9 -f "dist/runner/main.js stats"             a process dies in the middle; it is started anew',
    '    npx tsx stack/main.ts restart rabbitmq --name demo  the broker goes away and comes back',
    '    npx tsx stack/main.ts pause mongodb --name demo     ingest takes nothing more; resume, and it goes on',
    '  The counts at the end say whether anything was lost or done twice.',
    '',
    '  Ctrl-C stops everything. The data stay in .stack/demo for the next time.',
  ];
}

interface Options {
  readonly exit: boolean;
  readonly json: boolean;
  readonly count: number;
}

function parse(argv: string[]): Options | undefined {
  try {
    const { values } = parseArgs({
      args: argv,
      options: {
        exit: { type: 'boolean', default: false },
        json: { type: 'boolean', default: false },
        count: { type: 'string' },
      },
    });
    const count = Number(values.count ?? loadPayloads().length);
    if (!Number.isInteger(count) || count < 1) return undefined;
    return { exit: values.exit || values.json, json: values.json, count };
  } catch {
    return undefined;
  }
}

function unlessStopped<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const end = new Promise<never>((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
  });
  return Promise.race([work, end]);
}

process.exit(await main(process.argv.slice(2)));
