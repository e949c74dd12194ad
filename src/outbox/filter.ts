import type { Client } from 'pg';
import { ConfigurationError } from '../runtime/errors.js';

/** Which rows a command means. What is not given does not narrow; instants are those of `resolveInstant`. */
export interface RowFilter {
  readonly eventIds?: readonly string[];
  /** Exact, or with `*` for any characters. */
  readonly type?: string;
  readonly key?: string;
  /** Both ends count. Compared with the time since when a row is what it is: published, parked, or written. */
  readonly from?: string;
  readonly to?: string;
  /** No row with a higher id: what is written later is not meant. */
  readonly upToId?: string;
}

/** An instant as the operator gave it: ISO text with its time zone, or a span before now. */
export type Instant = { readonly iso: string } | { readonly secondsAgo: number };

/** A filter that was given in a form which Postgres refuses, as 30 February. */
export class UnusableInstant extends Error {
  override readonly name = 'UnusableInstant';
}

/** A `pg` client, or a pool. */
export type Session = Pick<Client, 'query'>;

/** SQLSTATE of a time that is none, and of one out of range. */
const NO_TIME = new Set(['22007', '22008', '22009']);
const UNDEFINED_TABLE = '42P01';

/** A timestamptz as ISO text in UTC with six digits: a Date of JavaScript keeps three, and then misses its own row. */
export const isoText = (expression: string): string =>
  `CASE WHEN isfinite(${expression}) THEN to_char(${expression} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        ELSE ${expression}::text END`;

/** Since when a row of the table `o` is what it is. */
export const SINCE = 'coalesce(o.published_at, o.parked_at, o.created_at)';

/**
 * The instant in Postgres' own digits, by Postgres' clock. Resolved once, so that every statement of a command means
 * the same one.
 * @throws {UnusableInstant} when there is no such time
 */
export async function resolveInstant(session: Session, instant: Instant): Promise<string> {
  const [expression, value] =
    'iso' in instant
      ? ['$1::timestamptz', instant.iso]
      : [`clock_timestamp() - $1::float8 * interval '1 second'`, instant.secondsAgo];
  try {
    const { rows } = await session.query<{ at: string }>(
      `SELECT ${isoText('t.at')} AS at FROM (SELECT ${expression} AS at) AS t`,
      [value],
    );
    return (rows[0] as { at: string }).at;
  } catch (error) {
    if (!NO_TIME.has((error as { code?: string }).code ?? '')) throw error;
    throw new UnusableInstant(`there is no such time: ${String(value)}`, { cause: error });
  }
}

/** The condition of a filter on the table `o`; `values` takes what it compares with. `since` is the time it looks at. */
export function condition(filter: RowFilter, values: unknown[], since = SINCE): string {
  const bind = (value: unknown): string => `$${values.push(value)}`;
  const parts: string[] = [];
  if (filter.eventIds !== undefined) parts.push(`o.event_id = ANY(${bind(filter.eventIds)}::uuid[])`);
  if (filter.type !== undefined)
    parts.push(
      filter.type.includes('*')
        ? `o.type LIKE ${bind(likePattern(filter.type))}`
        : `o.type = ${bind(filter.type)}`,
    );
  if (filter.key !== undefined) parts.push(`o.key = ${bind(filter.key)}`);
  if (filter.from !== undefined) parts.push(`${since} >= ${bind(filter.from)}::timestamptz`);
  if (filter.to !== undefined) parts.push(`${since} <= ${bind(filter.to)}::timestamptz`);
  if (filter.upToId !== undefined) parts.push(`o.id <= ${bind(filter.upToId)}::bigint`);
  return parts.length === 0 ? 'true' : parts.join(' AND ');
}

/** `*` is any characters, everything else itself. */
export function likePattern(pattern: string): string {
  return pattern.replace(/[\\%_]/g, '\\$&').replaceAll('*', '%');
}

/**
 * What `work` answers.
 * @throws {ConfigurationError} with the fix when a table is missing
 */
export async function onMigrated<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if ((error as { code?: string }).code !== UNDEFINED_TABLE) throw error;
    throw new ConfigurationError(
      `the outbox of DATABASE_URL is not what this version needs (${(error as Error).message}): run \`twinbox migrate\` first`,
      { cause: error },
    );
  }
}
