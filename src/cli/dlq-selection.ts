import type { LetterFilter } from '../broker/index.js';
import { UsageError } from './command.js';
import { readInstant } from './selection.js';

/** For parseArgs. */
export const LETTER_OPTIONS = {
  id: { type: 'string', multiple: true },
  letter: { type: 'string', multiple: true },
  type: { type: 'string' },
  cause: { type: 'string' },
  from: { type: 'string' },
  to: { type: 'string' },
} as const;

export const LETTERS_USAGE = `
  --id ID             message id, exact (may be repeated)
  --letter NAME       12 hex digits, as list shows them: for a letter without an id of its own (may be repeated)
  --type TYPE         exact, or with * for any characters: 'order.*'
  --cause CODE        what it died of: no-id, bad-id, too-large, undecodable, bad-envelope, conflict, failed,
                      delivery-limit, expired, maxlen …
  --from, --to TIME   both ends count; when it died. A letter without a time is not meant then.
                      2026-03-01T12:00:00.123Z, or a span before now: 90s, 30m, 2h, "7d ago"
`;

type Values = {
  readonly [K in keyof typeof LETTER_OPTIONS]?: (typeof LETTER_OPTIONS)[K] extends { multiple: true }
    ? string[] | undefined
    : string | undefined;
};

/**
 * @param nowMs the broker has no clock that answers: spans are counted from this machine's
 * @throws {UsageError} naming what cannot be understood
 */
export function readLetterFilter(values: Values, nowMs: number): LetterFilter {
  const wrong = values.letter?.find((name) => !/^[0-9a-f]{12}$/.test(name));
  if (wrong !== undefined)
    throw new UsageError(
      `--letter takes the 12 hex digits that \`dlq list\` shows, not ${JSON.stringify(wrong)}`,
    );
  const filter: LetterFilter = {
    ...(values.id === undefined ? {} : { ids: [...new Set(values.id)] }),
    ...(values.letter === undefined ? {} : { letters: [...new Set(values.letter)] }),
    ...(values.type === undefined ? {} : { type: values.type }),
    ...(values.cause === undefined ? {} : { cause: values.cause }),
    ...(values.from === undefined ? {} : { fromMs: instantMs('--from', values.from, nowMs) }),
    ...(values.to === undefined ? {} : { toMs: instantMs('--to', values.to, nowMs) }),
  };
  if (filter.fromMs !== undefined && filter.toMs !== undefined && filter.fromMs > filter.toMs)
    throw new UsageError(`the window ends (${values.to ?? ''}) before it begins (${values.from ?? ''})`);
  return filter;
}

function instantMs(option: string, text: string, nowMs: number): number {
  const instant = readInstant(option, text);
  if ('secondsAgo' in instant) return nowMs - instant.secondsAgo * 1_000;
  const [, day = '', rest = ''] = /^([\d-]+)[T ](.*)$/i.exec(instant.iso) ?? [];
  const ms = Date.parse(`${day}T${rest.toUpperCase().replace(/([+-]\d\d)(\d\d)$/, '$1:$2')}`);
  // Some days that are none are read as one of the next month.
  const exists = new Date(`${day}T00:00:00Z`);
  if (!Number.isNaN(ms) && !Number.isNaN(exists.getTime()) && exists.toISOString().startsWith(day)) return ms;
  throw new UsageError(`${option}: there is no such time: ${text}`);
}

const ACTOR = /^[a-z][a-z0-9-]{0,39}$/;

/**
 * The actor that a command is about. It may have left the list of actors: its letters are still there.
 * @throws {UsageError} when none is named
 */
export function readActor(verb: string, positionals: readonly string[]): [actor: string, ...rest: string[]] {
  const [actor, ...rest] = positionals;
  if (actor === undefined) throw new UsageError(`dlq ${verb} of which actor? \`twinbox status\` names them`);
  if (!ACTOR.test(actor)) throw new UsageError(`${JSON.stringify(actor)} is no name of an actor`);
  return [actor, ...rest];
}
