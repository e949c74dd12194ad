import { parseArgs } from 'node:util';
import { changeLetters, eachLetter, isMeant, type LetterChanged } from '../broker/index.js';
import type { Probe } from '../runtime/probe.js';
import {
  operator,
  untilInterrupted,
  UsageError,
  usageOf,
  wholeNumber,
  type CommandContext,
} from './command.js';
import { LARGEST_LIMIT, onlyActor } from './dlq-look.js';
import { LETTER_OPTIONS, readLetterFilter } from './dlq-selection.js';
import { visitLetters } from './dlq-visit.js';
import { addToPreview, emptyPreview, letterPreviewText } from './dlq-view.js';
import { tellSometimes } from './republish.js';
import { count, plain } from './table.js';

const DEFAULT_RATE = '500';
const DONE = { replay: 'replayed', purge: 'purged' } as const;

/** `twinbox dlq replay` and `twinbox dlq purge`. @returns the exit code */
export async function changeCommand(
  verb: 'replay' | 'purge',
  context: CommandContext,
  probe: Probe,
): Promise<number> {
  const { stdout, stderr } = context;
  const { actor, filter, most, perSecond, reason, yes, json } = readOrder(verb, context.argv);
  const named = filter.ids !== undefined || filter.letters !== undefined;

  const preview = async (): Promise<number> =>
    visitLetters(context, `dlq ${verb}`, async (model) => {
      const shown = emptyPreview();
      await eachLetter(model, actor, (letter) => {
        if (isMeant(filter, letter)) addToPreview(shown, letter);
        return shown.count === most ? 'enough' : 'more';
      });
      stdout.write(json ? `${JSON.stringify({ done: false, ...shown })}\n` : letterPreviewText(verb, shown));
      if (verb === 'replay' && shown.undecodable > 0)
        stderr.write(
          `of ${count(shown.undecodable, 'letter')} the headers cannot be decoded: not replayed\n`,
        );
      if (!json && shown.count > 0) stdout.write('nothing was changed; --yes does it\n');
      return shown.count === 0 && named ? 1 : 0;
    });

  const change = async (): Promise<number> => {
    const interrupt = untilInterrupted();
    try {
      return await visitLetters(context, `dlq ${verb}`, async (model) => {
        const result = await changeLetters({
          model,
          action: verb,
          audit: {
            who: operator(),
            command: `dlq ${verb}`,
            actor,
            filter,
            ...(reason === undefined ? {} : { reason }),
          },
          most,
          perSecond,
          signal: interrupt.signal,
          probe,
          progress: tellSometimes((changed) => stderr.write(`${count(changed, 'letter')} ${DONE[verb]}\n`)),
        });
        return report(result);
      });
    } finally {
      interrupt.end();
    }
  };

  const report = ({ changed, left, stopped }: LetterChanged): number => {
    const done = stopped === undefined && left.length === 0;
    if (json)
      stdout.write(
        `${JSON.stringify({ done, changed, left, ...(stopped === undefined ? {} : { stopped }) })}\n`,
      );
    else stdout.write(`${count(changed, 'letter')} ${DONE[verb]}\n`);
    for (const one of left.slice(0, 20))
      stderr.write(`left: ${one.letter} ${plain(one.id ?? '(no id)')}: ${plain(one.why)}\n`);
    if (left.length > 20) stderr.write(`left: ${left.length - 20} more\n`);
    if (stopped !== undefined) stderr.write(`${plain(stopped)}; the same command does the rest\n`);
    const missed = named && changed === 0 && left.length === 0;
    if (missed) stderr.write('none of those named is there\n');
    return done && !missed ? 0 : 1;
  };

  return yes ? change() : preview();
}

function readOrder(verb: 'replay' | 'purge', argv: readonly string[]) {
  const { values, positionals } = usageOf(() =>
    parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: {
        ...LETTER_OPTIONS,
        all: { type: 'boolean', default: false },
        limit: { type: 'string' },
        rate: { type: 'string' },
        reason: { type: 'string' },
        yes: { type: 'boolean', default: false },
        json: { type: 'boolean', default: false },
      },
    }),
  );
  const actor = onlyActor(verb, positionals);
  const filter = readLetterFilter(values, Date.now());
  const narrowed = Object.keys(filter).length > 0;
  if (narrowed === values.all)
    throw new UsageError(
      values.all
        ? '--all means every letter: it goes with no --id, --letter, --type, --cause, --from or --to'
        : `${verb} which letters? Say --id, --letter, --type, --cause, --from/--to, or --all`,
    );
  if (verb === 'purge' && values.rate !== undefined) throw new UsageError('dlq purge takes no --rate');
  const reason = values.reason?.trim();
  if (verb === 'purge' && values.yes && (reason === undefined || reason === ''))
    throw new UsageError('a purge needs --reason: it is kept in the audit for those who ask later');
  return {
    actor,
    filter,
    most: values.limit === undefined ? undefined : wholeNumber('--limit', values.limit, 1, LARGEST_LIMIT),
    perSecond: verb === 'purge' ? undefined : wholeNumber('--rate', values.rate ?? DEFAULT_RATE, 1, 100_000),
    reason: reason === '' ? undefined : reason,
    yes: values.yes,
    json: values.json,
  };
}
