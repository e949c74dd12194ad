import type { Letter, LetterAuditLine } from '../broker/index.js';
import { showBody, type ShownBody } from './outbox-view.js';
import { count, plain, shortened, table } from './table.js';

/** A letter as `list --json` has it. */
export interface ListedLetter {
  readonly letter: string;
  readonly id: string | null;
  readonly type: string;
  readonly reason: string;
  readonly detail: string;
  readonly diedAt: string | null;
  readonly replayCount: number;
  readonly origin: Letter['origin'];
  readonly bodyBytes: number;
  /** False: they are nested too deep, or malformed; what of them could be read is here. */
  readonly headersDecodable: boolean;
  /** The same message, died of the same: a kill between two steps leaves such. */
  copies: number;
}

const UNDECODABLE = 'headers cannot be decoded';

export function listed(letter: Letter): ListedLetter {
  const { letter: name, id, type, reason, detail, diedAtMs, replayCount, origin, body, undecodable } = letter;
  return {
    letter: name,
    id: id ?? null,
    type,
    reason,
    detail: undecodable === undefined ? detail : `${UNDECODABLE}: ${detail}`,
    diedAt: diedAtMs === undefined ? null : isoOf(diedAtMs),
    replayCount,
    origin,
    bodyBytes: body.length,
    headersDecodable: undecodable === undefined,
    copies: 1,
  };
}

/** A number that is no time a Date holds is shown as it is: a producer may have written it. */
function isoOf(ms: number): string {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? String(ms) : date.toISOString();
}

export function lettersTable(letters: readonly ListedLetter[]): string {
  return table(
    ['LETTER', 'ID', 'TYPE', 'REASON', 'DIED', 'REPLAYS', 'ORIGIN', 'DETAIL'],
    letters.map((one) => [
      one.letter,
      shortened(one.id ?? '-', 80),
      shortened(one.type, 60),
      one.reason,
      one.diedAt ?? '-',
      String(one.replayCount),
      shortened(originText(one.origin), 80),
      shortened(`${one.copies > 1 ? `${one.copies} copies; ` : ''}${one.detail}`, 160),
    ]),
  );
}

const originText = ({ exchange, routingKey }: Letter['origin']): string =>
  exchange === '' ? `'' ${routingKey}` : `${exchange} ${routingKey}`;

/** A letter with everything, in a form that JSON can hold. */
export interface WholeLetter extends Omit<ListedLetter, 'copies'> {
  readonly properties: Readonly<Record<string, unknown>>;
  readonly headers: unknown;
  /** The header table as it was sent, base64. */
  readonly undecodableHeaders?: string;
}

export function whole(letter: Letter): WholeLetter {
  const { copies: _copies, ...fields } = listed(letter);
  const properties = Object.entries(letter.properties).filter(([, value]) => value !== undefined);
  return {
    ...fields,
    properties: Object.fromEntries(properties),
    headers: jsonOf(letter.headers),
    ...(letter.undecodable === undefined
      ? {}
      : { undecodableHeaders: letter.undecodable.toString('base64') }),
  };
}

/** Bytes in a header, in the way in which the client library writes its other types. */
function jsonOf(value: unknown): unknown {
  if (Buffer.isBuffer(value)) return { '!': 'bytes', value: value.toString('base64') };
  if (Array.isArray(value)) return value.map(jsonOf);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, jsonOf(inner)]));
}

export function shownBody({ body }: Letter, most: number): ShownBody {
  return showBody(body.subarray(0, most), body.length);
}

/** Everything of one letter, a line each, and then its body. */
export function letterPage(
  { headers, properties, origin, undecodableHeaders, ...fields }: WholeLetter,
  body: ShownBody,
): string {
  const lines = Object.entries({
    ...fields,
    origin: originText(origin),
    properties: JSON.stringify(properties),
    headers: JSON.stringify(headers),
    ...(undecodableHeaders === undefined
      ? {}
      : {
          undecodable: `${Buffer.byteLength(undecodableHeaders, 'base64')} bytes; --json has them in base64`,
        }),
  })
    .filter(([, value]) => value !== null)
    .map(([name, value]) => `${name.padEnd(17)} ${plain(String(value))}`);
  const shown = body.cut ? `; its beginning, --full shows all` : '';
  const title = `${'body'.padEnd(17)} ${body.bytes} bytes, ${body.encoding}${shown}`;
  return `${lines.join('\n')}\n${title}\n\n${body.content.split('\n').map(plain).join('\n')}\n`;
}

/** A line of `export`: what publishing the letter again needs. */
export function exported(letter: Letter, actor: string): string {
  return `${JSON.stringify({ actor, ...whole(letter), body: letter.body.toString('base64') })}\n`;
}

export function auditTable(lines: readonly LetterAuditLine[]): string {
  return table(
    ['AT', 'WHO', 'COMMAND', 'ACTOR', 'LETTERS', 'ENDED', 'REASON', 'FILTER'],
    lines.map((line) => [
      line.at,
      line.who,
      line.command,
      line.actor,
      String(line.letters.length),
      line.ended ?? 'not: killed, or under way',
      shortened(line.reason ?? '', 80),
      shortened(JSON.stringify(line.filter), 120),
    ]),
  );
}

/** What a replay or purge would do. */
export interface LetterPreview {
  count: number;
  undecodable: number;
  readonly by: { readonly reason: string; readonly type: string; count: number }[];
  oldest: string | null;
  newest: string | null;
  readonly sample: { readonly letter: string; readonly id: string | null }[];
}

const SAMPLE = 5;

export const emptyPreview = (): LetterPreview => ({
  count: 0,
  undecodable: 0,
  by: [],
  oldest: null,
  newest: null,
  sample: [],
});

export function addToPreview(preview: LetterPreview, letter: Letter): void {
  const { reason, type, diedAt, id, headersDecodable } = listed(letter);
  preview.count += 1;
  if (!headersDecodable) preview.undecodable += 1;
  const same = preview.by.find((one) => one.reason === reason && one.type === type);
  if (same === undefined) preview.by.push({ reason, type, count: 1 });
  else same.count += 1;
  if (diedAt !== null && (preview.oldest === null || diedAt < preview.oldest)) preview.oldest = diedAt;
  if (diedAt !== null && (preview.newest === null || diedAt > preview.newest)) preview.newest = diedAt;
  if (preview.sample.length < SAMPLE) preview.sample.push({ letter: letter.letter, id });
}

export function letterPreviewText(verb: string, preview: LetterPreview): string {
  if (preview.count === 0) return `nothing to ${verb}: no letter is meant\n`;
  const { oldest, newest } = preview;
  const when = oldest === null ? '' : `, died ${oldest}${newest === oldest ? '' : ` … ${newest ?? ''}`}`;
  const kinds = [...preview.by].sort((one, other) => other.count - one.count).slice(0, 20);
  return [
    `would ${verb} ${count(preview.count, 'letter')}${when}\n`,
    table(
      ['  REASON', 'TYPE', 'LETTERS'],
      kinds.map((one) => [`  ${one.reason}`, one.type, String(one.count)]),
    ),
    preview.by.length > kinds.length ? '  (the twenty kinds with the most letters)\n' : '',
    `  for example ${preview.sample.map(({ letter, id }) => `${letter}${id === null ? '' : `  ${plain(id)}`}`).join('\n              ')}\n`,
  ].join('');
}
