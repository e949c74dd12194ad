import { parseArgs } from 'node:util';
import { listRows, openOperatorSession, showRow, type RowState } from '../outbox/index.js';
import { readConfig } from '../runtime/config.js';
import { UsageError, usageOf, wholeNumber, withUsage, type CommandContext } from './command.js';
import { purge, PURGE_USAGE } from './outbox-purge.js';
import { retry, RETRY_USAGE } from './outbox-retry.js';
import { rowPage, rowsTable, showBody, type ShownBody } from './outbox-view.js';
import { readSelection, resolveSelection, SELECTION_OPTIONS, SELECTION_USAGE } from './selection.js';
import { count } from './table.js';

const STATES = ['pending', 'waiting', 'parked', 'published'] as const satisfies readonly RowState[];
const LARGEST_LIMIT = 10_000;
/** Of a body that is shown. */
const BODY_BYTES = 65_536;

const USAGE = `twinbox outbox <command>

  list   [rows] [--state S] [--limit N] [--json]   rows, newest first; S: ${STATES.join(', ')}
  parked [rows] [--limit N] [--json]               rows that nothing will publish until someone acts
  show   <event_id> [--json]                       one row with its headers and the first ${BODY_BYTES / 1024} KiB of its body
  retry  [rows] [--all] [--yes]                    publish parked and waiting rows now (retry --help)
  purge  [--older-than DAYS] [--yes]               delete rows that were published long ago (purge --help)

rows:${SELECTION_USAGE}
--json prints one JSON document: an array for list and parked, without bodies. --limit is 50, at most ${LARGEST_LIMIT}.
Exit code: 0 done · 1 failed, or no such row · 2 usage · 78 configuration.
`;

/** `twinbox outbox …`. @returns the exit code */
export async function outbox(context: CommandContext): Promise<number> {
  const [verb, ...argv] = context.argv;
  const rest = { ...context, argv };
  switch (verb) {
    case 'list':
    case 'parked':
      return withUsage(USAGE, rest, () => list(rest, verb));
    case 'show':
      return withUsage(USAGE, rest, () => show(rest));
    case 'retry':
      return withUsage(RETRY_USAGE, rest, () => retry(rest));
    case 'purge':
      return withUsage(PURGE_USAGE, rest, () => purge(rest));
    default:
      return withUsage(USAGE, context, () => {
        throw new UsageError(
          verb === undefined
            ? 'what about the outbox?'
            : `there is no command outbox ${JSON.stringify(verb)}`,
        );
      });
  }
}

async function list({ argv, env, stdout, stderr }: CommandContext, verb: 'list' | 'parked'): Promise<number> {
  const { values, positionals } = usageOf(() =>
    parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: {
        ...SELECTION_OPTIONS,
        state: { type: 'string' },
        limit: { type: 'string', default: '50' },
        json: { type: 'boolean', default: false },
      },
    }),
  );
  const state = verb === 'parked' ? 'parked' : readState(values.state);
  if (verb === 'parked' && values.state !== undefined) throw new UsageError('outbox parked takes no --state');
  const selection = readSelection(values, positionals);
  const limit = wholeNumber('--limit', values.limit, 1, LARGEST_LIMIT);
  const { DATABASE_URL } = readConfig(env, ['DATABASE_URL'], { process: `twinbox outbox ${verb}` });

  const session = await openOperatorSession(DATABASE_URL, `outbox ${verb}`);
  try {
    const filter = await resolveSelection(session.client, selection);
    const rows = await listRows(session.client, { filter, limit, ...(state === undefined ? {} : { state }) });
    if (values.json) stdout.write(`${JSON.stringify(rows)}\n`);
    else if (rows.length > 0) stdout.write(rowsTable(rows));
    if (!values.json)
      stderr.write(`${count(rows.length, 'row')}${rows.length === limit ? '; --limit shows more' : ''}\n`);
    return 0;
  } finally {
    await session.close();
  }
}

function readState(text: string | undefined): RowState | undefined {
  const state = STATES.find((known) => known === text);
  if (text !== undefined && state === undefined)
    throw new UsageError(`--state takes one of ${STATES.join(', ')}, not ${JSON.stringify(text)}`);
  return state;
}

async function show({ argv, env, stdout, stderr }: CommandContext): Promise<number> {
  const { values, positionals } = usageOf(() =>
    parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: { json: { type: 'boolean', default: false } },
    }),
  );
  const [eventId, ...more] = readSelection({}, positionals).eventIds ?? [];
  if (eventId === undefined || more.length > 0) throw new UsageError('outbox show takes one event id');
  const { DATABASE_URL } = readConfig(env, ['DATABASE_URL'], { process: 'twinbox outbox show' });

  const session = await openOperatorSession(DATABASE_URL, 'outbox show');
  try {
    const row = await showRow(session.client, eventId, BODY_BYTES);
    if (row === undefined) {
      stderr.write(
        `the outbox has no row ${eventId}: it was never committed, or it was purged after its publication\n`,
      );
      return 1;
    }
    const body: ShownBody = showBody(row.body, row.bodyBytes);
    stdout.write(values.json ? `${JSON.stringify({ ...row, body })}\n` : rowPage(row, body));
    return 0;
  } finally {
    await session.close();
  }
}
