import { parseArgs } from 'node:util';
import { beginAudit, openOperatorSession, previewPurge, purgeAudited } from '../outbox/index.js';
import { readConfig } from '../runtime/config.js';
import { isOver } from '../runtime/loop.js';
import { operator, untilInterrupted, usageOf, wholeNumber, type CommandContext } from './command.js';
import { count } from './table.js';

const BATCH = 1_000;

export const PURGE_USAGE = `twinbox outbox purge [--older-than DAYS] [--yes] [--json]

Deletes rows that were published more than DAYS ago (OUTBOX_RETENTION_DAYS), in batches of ${BATCH}. Rows that are not
published are kept whatever their age. What is purged can be neither listed nor published again.
Without --yes it shows what it would do.

Exit code: 0 done, or shown · 1 failed, or rows are left (locked, or interrupted) · 2 usage · 78 configuration.
`;

/** `twinbox outbox purge …`. @returns the exit code */
export async function purge({ argv, env, stdout, stderr }: CommandContext): Promise<number> {
  const { values } = usageOf(() =>
    parseArgs({
      args: [...argv],
      options: {
        'older-than': { type: 'string' },
        yes: { type: 'boolean', default: false },
        json: { type: 'boolean', default: false },
      },
    }),
  );
  const given = values['older-than'];
  const named = given === undefined ? undefined : wholeNumber('--older-than', given, 1, 36_500);
  const config = readConfig(env, ['DATABASE_URL'], { process: 'twinbox outbox purge' });
  const days = named ?? config.OUTBOX_RETENTION_DAYS;

  const session = await openOperatorSession(config.DATABASE_URL, 'outbox purge', { lockMs: 1_000 });
  const interrupt = untilInterrupted();
  try {
    const preview = await previewPurge(session.client, days);
    const window = preview.oldest === null ? '' : `, published ${preview.oldest} … ${preview.newest ?? ''}`;
    if (!values.yes || preview.count === 0) {
      if (values.json) stdout.write(`${JSON.stringify({ done: false, ...preview })}\n`);
      else
        stdout.write(
          `would delete ${count(preview.count, 'row')}${window}\n${preview.count > 0 ? 'nothing was deleted; --yes does it\n' : ''}`,
        );
      return 0;
    }
    const auditId = await beginAudit(session.client, {
      who: operator(),
      command: `outbox purge --older-than ${days}`,
      filter: preview.newest === null ? {} : { to: preview.newest },
    });
    let deleted = 0;
    for (let batch = BATCH; batch === BATCH && !isOver(interrupt.signal); deleted += batch)
      batch = await purgeAudited(session.client, days, BATCH, auditId);
    const left = Math.max(0, preview.count - deleted);
    if (values.json) stdout.write(`${JSON.stringify({ done: left === 0, ...preview, deleted })}\n`);
    else stdout.write(`${count(deleted, 'row')} deleted\n`);
    if (left > 0)
      stderr.write(
        `${count(left, 'row')} left: ${isOver(interrupt.signal) ? 'interrupted' : 'locked by another session'}; the same command does the rest\n`,
      );
    return left === 0 ? 0 : 1;
  } finally {
    interrupt.end();
    await session.close();
  }
}
