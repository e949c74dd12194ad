/** Header tables deeper than this are not decoded: the client library's decoder recurses, and breaks from about 3,500 on. */
export const MAX_DEPTH = 1_000;

/** Bytes of the values that have a fixed size, by their type's letter (RabbitMQ's set of AMQP 0-9-1 types). */
const SIZES: Readonly<Record<string, number>> = {
  t: 1, b: 1, B: 1, s: 2, u: 2, I: 4, i: 4, l: 8, f: 4, d: 8, D: 5, T: 8, V: 0,
}; // prettier-ignore
/** A long string, bytes: a length, then what it says. */
const SIZED = 'Sx';
const TABLE = 'F';
const ARRAY = 'A';

interface Level {
  readonly end: number;
  /** In a table each value has a name before it. */
  readonly named: boolean;
}

/** An entry of a table, and whether a client library can decode its value. */
export interface Entry {
  /** The whole entry: name, type, value. */
  readonly bytes: Buffer;
  readonly decodable: boolean;
}

/**
 * The entries of an encoded header table, without decoding one: what is nested too deep, cut off or of an unknown type
 * is told instead of thrown. The depth costs no stack. What follows a value whose end cannot be known belongs to it.
 */
export function entriesOf(table: Buffer): Entry[] {
  const entries: Entry[] = [];
  for (let at = 0; at < table.length;) {
    const { end, decodable } = endOfEntry(table, at);
    entries.push({ bytes: table.subarray(at, end), decodable });
    at = end;
  }
  return entries;
}

function endOfEntry(table: Buffer, start: number): { end: number; decodable: boolean } {
  const whole: Level = { end: table.length, named: true };
  const first = valueAt(table, start, whole);
  if (first === undefined) return { end: table.length, decodable: false };
  return { end: first.end, decodable: isSound(table, first) };
}

interface Value {
  readonly end: number;
  /** What is inside it. */
  readonly inner?: { readonly start: number; readonly level: Level };
}

/** The value that begins at `start`, after its name where it has one; undefined when it is cut off or of no known type. */
function valueAt(table: Buffer, start: number, { end: limit, named }: Level): Value | undefined {
  const at = named ? start + 1 + (table[start] ?? 0) : start;
  if (at >= limit) return undefined;
  const type = String.fromCharCode(table[at] as number);
  const size = Object.hasOwn(SIZES, type) ? SIZES[type] : undefined;
  if (size !== undefined) return ending(at + 1 + size, limit);
  if (!(SIZED + TABLE + ARRAY).includes(type) || at + 5 > limit) return undefined;
  const content = at + 5;
  const end = content + table.readUInt32BE(at + 1);
  const value = ending(end, limit);
  if (value === undefined || SIZED.includes(type)) return value;
  return { end, inner: { start: content, level: { end, named: type === TABLE } } };
}

const ending = (end: number, limit: number): Value | undefined => (end > limit ? undefined : { end });

/** Walks everything inside a value, with a stack of its own. */
function isSound(table: Buffer, { inner }: Value): boolean {
  if (inner === undefined) return true;
  const levels: { at: number; readonly level: Level }[] = [{ at: inner.start, level: inner.level }];
  for (let top = levels.at(-1); top !== undefined; top = levels.at(-1)) {
    if (top.at >= top.level.end) {
      levels.pop();
      continue;
    }
    const value = valueAt(table, top.at, top.level);
    if (value === undefined || levels.length >= MAX_DEPTH) return false;
    top.at = value.end;
    if (value.inner !== undefined) levels.push({ at: value.inner.start, level: value.inner.level });
  }
  return true;
}
