import { randomUUID } from 'node:crypto';
import type { ChannelModel } from 'amqplib';
import { socketOf } from './dial.js';
import { entriesOf } from './header-table.js';

/** A header that no producer can have sent: under it stand the bytes of a table of which something was taken out. */
const MENDED = `undecodable-${randomUUID()}`;

/**
 * From now on this connection survives header tables that the client library cannot decode: it would drop the
 * connection at each delivery, for ever. What cannot be decoded is taken out of the table before the library sees it;
 * `undecodableOf` has the table as it was sent. For connections that look at dead letters.
 * Call it before the first channel is opened: then the broker is between two frames.
 */
export function mendHeaders(model: ChannelModel): void {
  const socket = socketOf(model);
  const read = socket.read.bind(socket) as (size?: number) => Buffer | null;
  const mend = frameMender();
  socket.read = (size?: number): Buffer | null => {
    const chunk = read(size);
    return chunk === null ? null : mend(chunk);
  };
}

/** The header table as it was sent, where something in it could not be decoded. */
export function undecodableOf(headers: Readonly<Record<string, unknown>> | undefined): Buffer | undefined {
  const raw = headers?.[MENDED];
  return Buffer.isBuffer(raw) ? raw : undefined;
}

/** The headers that could be decoded. */
export function decodedOf(headers: Readonly<Record<string, unknown>> | undefined): Record<string, unknown> {
  const { [MENDED]: _raw, ...rest } = headers ?? {};
  return rest;
}

const CONTENT_HEADER = 2;
/** Type, channel, size; and the end mark. */
const BEFORE = 7;
const AFTER = 1;

/** Takes bytes as they arrive, and gives on whole frames, mended. */
export function frameMender(): (chunk: Buffer) => Buffer {
  let held: Buffer[] = [];
  let heldBytes = 0;
  let needed = BEFORE;
  return (chunk) => {
    held.push(chunk);
    heldBytes += chunk.length;
    // Bodies come in frames of up to 128 KiB: what is incomplete is put together once, not at each chunk.
    if (heldBytes < needed) return Buffer.alloc(0);
    const bytes = Buffer.concat(held, heldBytes);
    const out: Buffer[] = [];
    let at = 0;
    for (;;) {
      needed = BEFORE;
      if (bytes.length - at < needed) break;
      needed = BEFORE + bytes.readUInt32BE(at + 3) + AFTER;
      if (bytes.length - at < needed) break;
      out.push(mendFrame(bytes.subarray(at, at + needed)));
      at += needed;
    }
    held = [bytes.subarray(at)];
    heldBytes = bytes.length - at;
    return Buffer.concat(out);
  };
}

/** Class, weight and body size, then the flags. */
const FLAGS_AT = BEFORE + 12;
const HAS_CONTENT_TYPE = 0x8000;
const HAS_CONTENT_ENCODING = 0x4000;
const HAS_HEADERS = 0x2000;

function mendFrame(frame: Buffer): Buffer {
  if (frame[0] !== CONTENT_HEADER) return frame;
  const flags = frame.readUInt16BE(FLAGS_AT);
  if ((flags & HAS_HEADERS) === 0) return frame;
  let at = FLAGS_AT + 2;
  for (const flag of [HAS_CONTENT_TYPE, HAS_CONTENT_ENCODING])
    if ((flags & flag) !== 0) at += 1 + (frame[at] as number);
  const end = at + 4 + frame.readUInt32BE(at);
  const table = frame.subarray(at + 4, end);
  const entries = entriesOf(table);
  if (entries.every(({ decodable }) => decodable)) return frame;
  const kept = entries.filter(({ decodable }) => decodable).map(({ bytes }) => bytes);
  const mended = Buffer.concat([...kept, bytesEntry(MENDED, table)]);
  const payload = Buffer.concat([
    frame.subarray(BEFORE, at),
    uint32(mended.length),
    mended,
    frame.subarray(end, -AFTER),
  ]);
  return Buffer.concat([frame.subarray(0, 3), uint32(payload.length), payload, frame.subarray(-AFTER)]);
}

function bytesEntry(name: string, value: Buffer): Buffer {
  return Buffer.concat([
    Buffer.from([name.length]),
    Buffer.from(name, 'latin1'),
    Buffer.from('x'),
    uint32(value.length),
    value,
  ]);
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}
