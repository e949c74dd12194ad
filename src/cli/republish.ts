import { parseArgs } from 'node:util';
import {
  countPublishedBefore,
  openOperatorSession,
  previewRepair,
  resolveInstant,
  type RepairPreview,
  type RowFilter,
} from '../outbox/index.js';
import { readConfig } from '../runtime/config.js';
import {
  operator,
  untilInterrupted,
  UsageError,
  usageOf,
  wholeNumber,
  withUsage,
  type CommandContext,
} from './command.js';
import { meant } from './outbox-retry.js';
import { runRepair } from './repair-run.js';
import { filterArguments, previewText, quoted } from './repair-view.js';
import {
  readSelection,
  resolveSelection,
  SELECTION_OPTIONS,
  SELECTION_USAGE,
  type Selection,
} from './selection.js';
import { count, span } from './table.js';

const DEFAULT_RATE = '500';

const USAGE = `twinbox republish --from TIME --to TIME [--type T] [--key K] [--rate N] --reason TEXT [--yes] [--json]
twinbox republish <event_id…> …

Puts rows that were published in a window on their way once more, on purpose: the same event ids, in the order of their
ids, at most N rows a second (${DEFAULT_RATE}). Every mailbox that subscribes gets them. An inbox drops those it remembers; one that
has forgotten a message (INBOX_RETENTION_SECONDS after its effect) runs the effect a second time.
Without --yes it shows what it would do.
${SELECTION_USAGE}
Ctrl-C stops after the batch under way, and says how to go on.
Exit code: 0 done, or shown · 1 failed or interrupted · 2 usage · 78 configuration.
`;

/** `twinbox republish …`. @returns the exit code */
export function republish(context: CommandContext): Promise<number> {
  return withUsage(USAGE, context, () => run(context));
}

interface Order {
  readonly selection: Selection;
  readonly perSecond: number;
  readonly reason: string | undefined;
  readonly yes: boolean;
  readonly json: boolean;
}

function readOrder(argv: readonly string[]): Order {
  const { values, positionals } = usageOf(() =>
    parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: {
        ...SELECTION_OPTIONS,
        rate: { type: 'string', default: DEFAULT_RATE },
        reason: { type: 'string' },
        yes: { type: 'boolean', default: false },
        json: { type: 'boolean', default: false },
      },
    }),
  );
  const selection = readSelection(values, positionals);
  if (selection.eventIds === undefined && (selection.from === undefined || selection.to === undefined))
    throw new UsageError('republish takes a whole window, --from and --to, or event ids');
  const reason = values.reason?.trim();
  if (values.yes && (reason === undefined || reason === ''))
    throw new UsageError('republish needs --reason: it is kept in outbox_audit for those who ask later');
  return {
    selection,
    perSecond: wholeNumber('--rate', values.rate, 1, 100_000),
    reason,
    yes: values.yes,
    json: values.json,
  };
}

async function run({ argv, env, stdout, stderr }: CommandContext): Promise<number> {
  const order = readOrder(argv);
  const config = readConfig(env, ['DATABASE_URL'], { process: 'twinbox republish' });
  const session = await openOperatorSession(config.DATABASE_URL, 'republish');
  const interrupt = untilInterrupted();
  try {
    const filter = endingNow(
      await resolveSelection(session.client, order.selection),
      await resolveInstant(session.client, { secondsAgo: 0 }),
    );
    const preview = await previewRepair(session.client, 'republish', filter);
    const forgotten = await countPublishedBefore(session.client, filter, config.INBOX_RETENTION_SECONDS);
    if (!order.yes || preview.count === 0) {
      if (order.json) stdout.write(`${JSON.stringify({ done: false, ...preview, filter, forgotten })}\n`);
      else stdout.write(previewText('republish', preview));
      if (preview.count > 0)
        stderr.write(warning(preview, forgotten, config.INBOX_RETENTION_SECONDS, order.perSecond));
      if (!order.json && preview.count > 0)
        stdout.write(`nothing was changed; this does it:\n  ${commandLine(filter, order)}\n`);
      return 0;
    }
    stderr.write(warning(preview, forgotten, config.INBOX_RETENTION_SECONDS, order.perSecond));
    const result = await runRepair({
      session,
      repair: 'republish',
      filter: meant(filter, preview),
      audit: {
        who: operator(),
        command: 'republish',
        ...(order.reason === undefined ? {} : { reason: order.reason }),
      },
      perSecond: order.perSecond,
      signal: interrupt.signal,
      progress: tellSometimes((changed) =>
        stderr.write(`${changed} of ${count(preview.count, 'row')} are pending again\n`),
      ),
    });
    if (order.json)
      stdout.write(
        `${JSON.stringify({ done: result.complete, ...preview, filter, forgotten, changed: result.changed })}\n`,
      );
    else
      stdout.write(
        `${count(result.changed, 'row')} of ${preview.count} pending again; a relay publishes them\n`,
      );
    // A row that was published anew has left the window, so that the same window is what is left of it.
    if (!result.complete) stderr.write(`interrupted; this does the rest:\n  ${commandLine(filter, order)}\n`);
    return result.complete ? 0 : 1;
  } finally {
    interrupt.end();
    await session.close();
  }
}

/** A window that ends in the future would take in what this command itself publishes: it ends now. */
export function endingNow(filter: RowFilter, now: string): RowFilter {
  return filter.to === undefined || filter.to < now
    ? { ...filter, to: filter.to ?? now }
    : { ...filter, to: now };
}

function warning(
  { count: rows }: RepairPreview,
  forgotten: number,
  retentionSeconds: number,
  perSecond: number,
): string {
  const remembered = rows - forgotten;
  return [
    `takes ${span(rows / perSecond)} at ${perSecond} rows a second\n`,
    forgotten === 0
      ? ''
      : `WARNING: ${count(forgotten, 'row')} published more than ${span(retentionSeconds)} ago (INBOX_RETENTION_SECONDS): an inbox may have forgotten them, and then their effects run a SECOND time\n`,
    remembered === 0
      ? ''
      : `${count(remembered, 'row')} published within ${span(retentionSeconds)}: an inbox drops those it has, so only mailboxes that lost them, or are new, are helped\n`,
  ].join('');
}

function commandLine(filter: RowFilter, { perSecond, reason }: Order): string {
  return `twinbox republish ${filterArguments(filter)} --rate ${perSecond} --reason ${quoted(reason ?? '…')} --yes`;
}

/** At most every two seconds: a line for each batch tells nobody anything. */
export function tellSometimes(tell: (changed: number) => void): (changed: number) => void {
  let lastMs = performance.now();
  return (changed) => {
    if (performance.now() - lastMs < 2_000) return;
    lastMs = performance.now();
    tell(changed);
  };
}
