import { parseArgs } from 'node:util';
import { eachLetter, isMeant, readLetterAudit, type Letter } from '../broker/index.js';
import { UsageError, usageOf, wholeNumber, type CommandContext } from './command.js';
import { LETTER_OPTIONS, readActor, readLetterFilter } from './dlq-selection.js';
import { visitLetters } from './dlq-visit.js';
import {
  auditTable,
  exported,
  letterPage,
  listed,
  lettersTable,
  shownBody,
  whole,
  type ListedLetter,
} from './dlq-view.js';
import { count } from './table.js';

export const LARGEST_LIMIT = 10_000_000;
/** Of a body that is shown. */
const BODY_BYTES = 65_536;

/** `twinbox dlq list`. @returns the exit code */
export async function listCommand(context: CommandContext): Promise<number> {
  const { argv, stdout, stderr } = context;
  const { values, positionals } = usageOf(() =>
    parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: {
        ...LETTER_OPTIONS,
        limit: { type: 'string', default: '50' },
        json: { type: 'boolean', default: false },
      },
    }),
  );
  const actor = onlyActor('list', positionals);
  const filter = readLetterFilter(values, Date.now());
  const limit = wholeNumber('--limit', values.limit, 1, LARGEST_LIMIT);
  return visitLetters(context, 'dlq list', async (model) => {
    const shown = new Map<string, ListedLetter>();
    const looked = await eachLetter(model, actor, (letter) => {
      if (!isMeant(filter, letter)) return 'more';
      // Two letters that a kill left of one message are one thing to a person.
      const same = `${letter.letter} ${letter.reason} ${letter.replayCount}`;
      const before = shown.get(same);
      if (before !== undefined) before.copies += 1;
      else if (shown.size === limit) return 'enough';
      else shown.set(same, listed(letter));
      return 'more';
    });
    const rows = [...shown.values()];
    if (values.json) stdout.write(`${JSON.stringify(rows)}\n`);
    else if (rows.length > 0) stdout.write(lettersTable(rows));
    const more = looked.partly ? `; of ${looked.ready} the rest was not looked at` : ` of ${looked.ready}`;
    if (!values.json)
      stderr.write(
        `${count(rows.length, 'letter')}${more}${rows.length === limit ? '; --limit shows more' : ''}\n`,
      );
    return 0;
  });
}

/** `twinbox dlq show`. @returns the exit code */
export async function showCommand(context: CommandContext): Promise<number> {
  const { argv, stdout, stderr } = context;
  const { values, positionals } = usageOf(() =>
    parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: {
        letter: { type: 'string' },
        full: { type: 'boolean', default: false },
        json: { type: 'boolean', default: false },
      },
    }),
  );
  const [actor, id, ...more] = readActor('show', positionals);
  if ((id === undefined) === (values.letter === undefined) || more.length > 0)
    throw new UsageError('dlq show takes one message id, or --letter');
  const named = values.letter === undefined ? { id: [id ?? ''] } : { letter: [values.letter] };
  const filter = readLetterFilter(named, Date.now());
  return visitLetters(context, 'dlq show', async (model) => {
    const found: Pick<Letter, 'letter' | 'reason'>[] = [];
    let first: Letter | undefined;
    await eachLetter(model, actor, (letter) => {
      if (!isMeant(filter, letter)) return 'more';
      first ??= letter;
      found.push({ letter: letter.letter, reason: letter.reason });
      return 'more';
    });
    if (first === undefined) {
      stderr.write(`there is no such letter of ${actor}: it was replayed or purged, or never was one\n`);
      return 1;
    }
    const body = shownBody(first, values.full ? first.body.length : BODY_BYTES);
    const page = whole(first);
    stdout.write(values.json ? `${JSON.stringify({ ...page, body })}\n` : letterPage(page, body));
    for (const other of found.slice(1, 20))
      stderr.write(`there is another: ${other.letter} (${other.reason})\n`);
    return 0;
  });
}

/** `twinbox dlq export`. @returns the exit code */
export async function exportCommand(context: CommandContext): Promise<number> {
  const { argv, stdout, stderr } = context;
  const { values, positionals } = usageOf(() =>
    parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: { ...LETTER_OPTIONS, limit: { type: 'string' } },
    }),
  );
  const actor = onlyActor('export', positionals);
  const filter = readLetterFilter(values, Date.now());
  const limit =
    values.limit === undefined ? Infinity : wholeNumber('--limit', values.limit, 1, LARGEST_LIMIT);
  return visitLetters(context, 'dlq export', async (model) => {
    let written = 0;
    const looked = await eachLetter(model, actor, (letter) => {
      if (!isMeant(filter, letter)) return 'more';
      stdout.write(exported(letter, actor));
      written += 1;
      return written === limit ? 'enough' : 'more';
    });
    const cut = looked.partly && written < limit;
    stderr.write(
      `${count(written, 'letter')} written${cut ? `; only the oldest ${looked.messages} of ${looked.ready} can be looked at` : ''}\n`,
    );
    return cut ? 1 : 0;
  });
}

/** `twinbox dlq audit`. @returns the exit code */
export async function auditCommand(context: CommandContext): Promise<number> {
  const { argv, stdout, stderr } = context;
  const { values, positionals } = usageOf(() =>
    parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: { limit: { type: 'string', default: '50' }, json: { type: 'boolean', default: false } },
    }),
  );
  const actor = onlyActor('audit', positionals);
  const limit = wholeNumber('--limit', values.limit, 1, LARGEST_LIMIT);
  return visitLetters(context, 'dlq audit', async (model) => {
    const all = (await readLetterAudit(model)).filter((line) => line.actor === actor).reverse();
    const lines = all.slice(0, limit);
    if (values.json) stdout.write(`${JSON.stringify(lines)}\n`);
    else if (lines.length > 0) stdout.write(auditTable(lines));
    if (!values.json)
      stderr.write(`${count(lines.length, 'command')}${all.length > limit ? '; --limit shows more' : ''}\n`);
    return 0;
  });
}

export function onlyActor(verb: string, positionals: readonly string[]): string {
  const [actor, ...more] = readActor(verb, positionals);
  if (more.length > 0)
    throw new UsageError(
      `dlq ${verb} takes one actor; which letters is said by --id and others, not by ${JSON.stringify(more[0])}`,
    );
  return actor;
}
