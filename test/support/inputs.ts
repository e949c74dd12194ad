import { readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { join } from 'node:path';

/** One message of test/cases/inputs/, in whatever way its file writes it, as it is to be published. */
export interface Input {
  readonly case: string;
  readonly properties: Readonly<Record<string, unknown>>;
  /** Bytes of the id that no client library would send. */
  readonly rawId?: Buffer;
  readonly body: Buffer;
  readonly times: number;
  readonly expect: Readonly<Record<string, unknown>> & { readonly in: string };
  /** The entry itself. */
  readonly entry: Readonly<Record<string, unknown>>;
}

type Entry = Record<string, unknown> & { case: string; expect: Input['expect'] };

export const GOOD = { orderId: 'o-1', email: 'a@example.org', totalCents: 1999 };

export function inputsOf(file: 'producer-formats' | 'message-ids' | 'poison-bodies' | 'headers'): Input[] {
  const path = join(import.meta.dirname, '..', 'cases', 'inputs', `${file}.json`);
  const { entries } = JSON.parse(readFileSync(path, 'utf8')) as { entries: Entry[] };
  return entries.flatMap((entry) => (file === 'message-ids' ? idInputs(entry) : [inputOf(file, entry)]));
}

function inputOf(file: string, entry: Entry): Input {
  const named = file === 'producer-formats' || entry.noMessageId === true ? {} : { messageId: entry.case };
  const headers = headersOf(entry);
  const own = file === 'producer-formats' ? {} : { contentType: 'application/json' };
  return {
    case: entry.case,
    properties: {
      ...own,
      ...named,
      ...(values(entry.props) as object | undefined),
      ...pick(entry, ['contentType', 'contentEncoding']),
      ...(headers === undefined ? {} : { headers }),
    },
    body: bodyOf(entry),
    times: 1,
    expect: entry.expect,
    entry,
  };
}

/** Several of one id are several inputs when their bodies differ. */
function idInputs(entry: Entry): Input[] {
  const bodies = Array.from({ length: Number(entry.bodies ?? 1) }, (_, nth) => nth);
  return bodies.map((nth) => {
    const body = entry.bodyJson ?? { ...GOOD, orderId: nth === 0 ? entry.case : `${entry.case} ${nth}` };
    const raw = entry.messageIdHex as string | undefined;
    return {
      case: entry.case,
      properties: { contentType: 'application/json', ...pick(entry, ['messageId', 'contentType']) },
      ...(raw === undefined ? {} : { rawId: Buffer.from(raw, 'hex') }),
      body: Buffer.from(JSON.stringify(values(body))),
      times: Number(entry.times ?? 1),
      expect: entry.expect,
      entry,
    };
  });
}

function headersOf(entry: Entry): unknown {
  // A JSON text is parsed, not copied: `__proto__` is a member of it like any other.
  if (typeof entry.headersJson === 'string') return JSON.parse(entry.headersJson) as unknown;
  return entry.headers === undefined ? undefined : values(entry.headers);
}

function bodyOf(entry: Entry): Buffer {
  const { utf8, base64, body, make } = entry as {
    utf8?: string;
    base64?: string;
    body?: unknown;
    make?: Record<string, unknown>;
  };
  if (utf8 !== undefined) return Buffer.from(utf8);
  if (base64 !== undefined) return Buffer.from(base64, 'base64');
  if (make === undefined) return Buffer.from(JSON.stringify(body ?? GOOD));
  if (make.gzipOfZeros !== undefined) return gzipSync(Buffer.alloc(Number(make.gzipOfZeros)));
  if (make.repeat !== undefined) return Buffer.from((make.repeat as string).repeat(Number(make.times)));
  const depth = Number(make.depth);
  return Buffer.from((make.open as string).repeat(depth) + (make.close as string).repeat(depth));
}

/** What JSON cannot state: see `values` of each file. */
function values(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(values);
  if (typeof value !== 'object' || value === null) return value;
  const one = value as Record<string, unknown>;
  if (typeof one.$bytes === 'string') return Buffer.from(one.$bytes, 'base64');
  if (one.$timestamp !== undefined) return { '!': 'timestamp', value: one.$timestamp };
  if (one.$int64 !== undefined) return { '!': 'int64', value: BigInt(one.$int64 as string) };
  if (one.$repeat !== undefined) return (one.$repeat as string).repeat(Number(one.times));
  if (one.$nest !== undefined) {
    let table: object = {};
    for (let level = 0; level < Number(one.$nest); level += 1) table = { n: table };
    return table;
  }
  return Object.fromEntries(Object.entries(one).map(([name, member]) => [name, values(member)]));
}

const pick = (entry: Entry, names: readonly string[]): object =>
  Object.fromEntries(names.filter((name) => entry[name] !== undefined).map((name) => [name, entry[name]]));
