import { parseArgs } from 'node:util';
import { openOperatorSession, previewRepair, type RepairPreview, type RowFilter } from '../outbox/index.js';
import { readConfig } from '../runtime/config.js';
import { operator, untilInterrupted, UsageError, usageOf, type CommandContext } from './command.js';
import { runRepair } from './repair-run.js';
import { previewText } from './repair-view.js';
import { readSelection, resolveSelection, SELECTION_OPTIONS, SELECTION_USAGE } from './selection.js';
import { count } from './table.js';

export const RETRY_USAGE = `twinbox outbox retry <rows> [--yes] [--reason TEXT] [--json]

Makes parked rows, and rows that wait after a failure, due at once, with fresh attempts and under the same event id.
Without --yes it shows what it would do. Rows that are published, or were never tried, are never touched.
${SELECTION_USAGE}  --all               every row that is parked or waits after a failure
  --reason TEXT       kept in outbox_audit, beside who, when, which rows and how many
  --yes               do it

Exit code: 0 done, or shown · 1 failed, interrupted, or none of the ids named could be retried · 2 usage · 78 configuration.
`;

/** `twinbox outbox retry …`. @returns the exit code */
export async function retry({ argv, env, stdout, stderr }: CommandContext): Promise<number> {
  const { values, positionals } = usageOf(() =>
    parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: {
        ...SELECTION_OPTIONS,
        all: { type: 'boolean', default: false },
        reason: { type: 'string' },
        yes: { type: 'boolean', default: false },
        json: { type: 'boolean', default: false },
      },
    }),
  );
  const selection = readSelection(values, positionals);
  const narrowed = Object.keys(selection).length > 0;
  if (narrowed === values.all)
    throw new UsageError(
      values.all
        ? '--all means every row: it goes with nothing else'
        : 'retry which rows? Name ids, --type, --key, --from/--to, or --all',
    );
  const { DATABASE_URL } = readConfig(env, ['DATABASE_URL'], { process: 'twinbox outbox retry' });

  const session = await openOperatorSession(DATABASE_URL, 'outbox retry');
  const interrupt = untilInterrupted();
  try {
    const filter = await resolveSelection(session.client, selection);
    const preview = await previewRepair(session.client, 'retry', filter);
    const left = (filter.eventIds?.length ?? preview.count) - preview.count;
    if (left > 0)
      stderr.write(`${count(left, 'id')} of those named: neither parked nor waiting after a failure\n`);
    const failed = preview.count === 0 && filter.eventIds !== undefined;
    if (!values.yes || preview.count === 0) {
      stdout.write(
        values.json ? `${JSON.stringify({ done: false, ...preview })}\n` : previewText('retry', preview),
      );
      if (!values.json && preview.count > 0) stdout.write('nothing was changed; --yes does it\n');
      return failed ? 1 : 0;
    }
    const result = await runRepair({
      session,
      repair: 'retry',
      filter: meant(filter, preview),
      audit: {
        who: operator(),
        command: 'outbox retry',
        ...(values.reason === undefined ? {} : { reason: values.reason }),
      },
      signal: interrupt.signal,
      progress: () => undefined,
    });
    if (values.json)
      stdout.write(`${JSON.stringify({ done: result.complete, ...preview, changed: result.changed })}\n`);
    else stdout.write(`${count(result.changed, 'row')} of ${preview.count} changed: due now, attempts 0\n`);
    if (!result.complete) stderr.write('interrupted: the same command does the rest\n');
    return result.complete ? 0 : 1;
  } finally {
    interrupt.end();
    await session.close();
  }
}

/** What was shown, and nothing that was written since. */
export function meant(filter: RowFilter, { lastId }: RepairPreview): RowFilter {
  return lastId === null ? filter : { ...filter, upToId: lastId };
}
