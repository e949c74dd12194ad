import { resolveInstant, UnusableInstant, type Instant, type RowFilter } from '../outbox/index.js';
import { UsageError } from './command.js';

/** Which rows the operator named, with times as they were written. */
export interface Selection {
  readonly eventIds?: readonly string[];
  readonly type?: string;
  readonly key?: string;
  readonly from?: Instant;
  readonly to?: Instant;
}

/** For parseArgs. */
export const SELECTION_OPTIONS = {
  type: { type: 'string' },
  key: { type: 'string' },
  from: { type: 'string' },
  to: { type: 'string' },
} as const;

export const SELECTION_USAGE = `
  <event_id…>         these rows
  --type TYPE         exact, or with * for any characters: 'order.*'
  --key KEY           exact
  --from, --to TIME   both ends count; the time since when a row is what it is: published, parked, or else written.
                      2026-03-01T12:00:00.123456Z (up to six digits), or a span before now: 90s, 30m, 2h, "7d ago"
`;

const UUID = /^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$/i;
const ISO = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?$/i;
const SPAN = /^(\d{1,9}(?:\.\d{1,3})?) ?(s|m|h|d)(?: ago)?$/;
const SECONDS_OF = { s: 1, m: 60, h: 3_600, d: 86_400 } as const;

/** @throws {UsageError} naming what cannot be understood */
export function readSelection(
  values: { readonly [K in keyof typeof SELECTION_OPTIONS]?: string | undefined },
  eventIds: readonly string[],
): Selection {
  const wrong = eventIds.find((id) => !UUID.test(id));
  if (wrong !== undefined) throw new UsageError(`${JSON.stringify(wrong)} is not an event id (a UUID)`);
  for (const name of ['type', 'key'] as const)
    if (values[name]?.includes('\0') === true)
      throw new UsageError(`--${name}: no row holds a NUL character`);
  return {
    ...(eventIds.length === 0 ? {} : { eventIds: [...new Set(eventIds.map((id) => id.toLowerCase()))] }),
    ...(values.type === undefined ? {} : { type: values.type }),
    ...(values.key === undefined ? {} : { key: values.key }),
    ...(values.from === undefined ? {} : { from: readInstant('--from', values.from) }),
    ...(values.to === undefined ? {} : { to: readInstant('--to', values.to) }),
  };
}

/**
 * A time as people write it. It stays text: Postgres alone compares times, since a Date keeps three of their six digits.
 * @throws {UsageError} when it is neither an instant with its zone nor a span
 */
export function readInstant(option: string, text: string): Instant {
  if (text === 'now') return { secondsAgo: 0 };
  const [, amount, unit] = SPAN.exec(text) ?? [];
  if (amount !== undefined)
    return { secondsAgo: Number(amount) * SECONDS_OF[unit as keyof typeof SECONDS_OF] };
  const [, , fraction, zone] = ISO.exec(text) ?? [];
  if (!ISO.test(text))
    throw new UsageError(
      `${option} takes an instant such as 2026-03-01T12:00:00.123456Z, or a span before now such as 2h; ${JSON.stringify(text)} is neither`,
    );
  if (zone === undefined)
    throw new UsageError(`${option}: ${text} names no time zone; add Z for UTC, or an offset such as +02:00`);
  if ((fraction?.length ?? 0) > 7)
    throw new UsageError(`${option}: Postgres keeps six digits of a second; ${text} has more`);
  return { iso: text };
}

/**
 * The filter of a selection, with every time resolved once by Postgres' clock.
 * @throws {UsageError} for a time that does not exist, or a window that ends before it begins
 */
export async function resolveSelection(
  session: Parameters<typeof resolveInstant>[0],
  { from, to, ...rest }: Selection,
): Promise<RowFilter> {
  const resolve = async (option: string, instant: Instant): Promise<string> => {
    try {
      return await resolveInstant(session, instant);
    } catch (error) {
      if (error instanceof UnusableInstant)
        throw new UsageError(`${option}: ${error.message}`, { cause: error });
      throw error;
    }
  };
  const filter: RowFilter = {
    ...rest,
    ...(from === undefined ? {} : { from: await resolve('--from', from) }),
    ...(to === undefined ? {} : { to: await resolve('--to', to) }),
  };
  // Both are Postgres' own text in UTC with six digits: their order is that of the times.
  if (filter.from !== undefined && filter.to !== undefined && filter.from > filter.to)
    throw new UsageError(`the window ends (${filter.to}) before it begins (${filter.from})`);
  return filter;
}
