import type { ListedRow, ShownRow } from '../outbox/index.js';
import { plain, shortened, table } from './table.js';

/** A body as it can be shown: text where it is UTF-8, else base64; of a long one the beginning. */
export interface ShownBody {
  readonly bytes: number;
  readonly encoding: 'utf8' | 'base64';
  readonly content: string;
  /** There is more of it than `content`. */
  readonly cut: boolean;
}

export function showBody(body: Buffer, bytes: number): ShownBody {
  const cut = bytes > body.length;
  try {
    // With `stream` a character whose rest was cut off is left out; anything else that is not UTF-8 throws.
    const content = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body, { stream: cut });
    return { bytes, encoding: 'utf8', content, cut };
  } catch {
    return { bytes, encoding: 'base64', content: body.toString('base64'), cut };
  }
}

/** Since when the row is what it is. */
export function sinceOf(row: ListedRow): string {
  return row.publishedAt ?? row.parkedAt ?? row.createdAt;
}

export function rowsTable(rows: readonly ListedRow[]): string {
  return table(
    ['EVENT ID', 'STATE', 'SINCE', 'TYPE', 'KEY', 'ATTEMPTS', 'LAST ERROR'],
    rows.map((row) => [
      row.eventId,
      row.state,
      sinceOf(row),
      row.type,
      shortened(row.key ?? '', 60),
      String(row.attempts),
      shortened(row.lastError ?? '', 120),
    ]),
  );
}

/** Everything of one row, a line each, and then its body. */
export function rowPage(row: ShownRow, body: ShownBody): string {
  const { headers, body: _body, ...fields } = row;
  const lines = Object.entries({ ...fields, headers: JSON.stringify(headers) })
    .filter(([, value]) => value !== null)
    .map(([name, value]) => `${name.padEnd(14)} ${plain(String(value))}`);
  const title = `body           ${body.bytes} bytes, ${body.encoding}${body.cut ? `; the first ${row.body.length} bytes` : ''}`;
  return `${lines.join('\n')}\n${title}\n\n${body.content.split('\n').map(plain).join('\n')}\n`;
}
