import type { RepairPreview, RowFilter } from '../outbox/index.js';
import { count, plain, table } from './table.js';

/** What would be changed, for a person. */
export function previewText(
  verb: string,
  { count: rows, byType, oldest, newest, sample }: RepairPreview,
): string {
  if (rows === 0) return `nothing to ${verb}: no row is meant\n`;
  const types = byType.map(({ type, count: number }) => [`  ${type}`, String(number)]);
  return [
    `would ${verb} ${count(rows, 'row')}, since ${oldest ?? ''}${newest === oldest ? '' : ` … ${newest ?? ''}`}\n`,
    table(['  TYPE', 'ROWS'], types),
    byType.length === 20 ? '  (the twenty types with the most rows)\n' : '',
    `  for example ${sample.join('\n              ')}\n`,
  ].join('');
}

/** The options that mean exactly this filter, for a command line. */
export function filterArguments({ eventIds = [], type, key, from, to }: RowFilter): string {
  return [
    ...eventIds,
    ...(from === undefined ? [] : ['--from', from]),
    ...(to === undefined ? [] : ['--to', to]),
    ...(type === undefined ? [] : ['--type', quoted(type)]),
    ...(key === undefined ? [] : ['--key', quoted(key)]),
  ].join(' ');
}

/** For a POSIX shell; with control characters, for bash and its like. */
export function quoted(text: string): string {
  if (/^[\w.:@/-]+$/.test(text)) return text;
  if (plain(text) === text) return `'${text.replaceAll("'", `'\\''`)}'`;
  return `$'${plain(text.replace(/[\\']/g, '\\$&'))}'`;
}
