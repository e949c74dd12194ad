import { types } from 'node:util';
import { HEADER } from '../message/index.js';
import { below, characterFault, kindOf, textFault, type EventFault } from './fault.js';

/** What the inbox keeps of a header (src/message/envelope.ts): beyond these it would be dropped without a word. */
export const MAX_HEADERS = 64;
const MAX_HEADER_BYTES = 1_024;
/** AMQP writes a name's length into one byte. */
const MAX_NAME_BYTES = 255;
/**
 * Of all names and values. With the type, the key and what AMQP adds they stay well below the 64 KiB into which the
 * client library encodes a header table, and below one frame.
 */
const MAX_TOTAL_BYTES = 32_768;
/** W3C Trace Context; of anything else ingest makes no trace. */
const TRACEPARENT = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/;

/** By these the broker puts copies into queues that did not subscribe. */
const COPIES = new Set(['cc', 'bcc']);
/** Written on the way, by us or by the broker. */
const OURS: ReadonlySet<string> = new Set(
  Object.values(HEADER).filter((name) => name !== HEADER.traceparent),
);
const OF_TRANSPORT = /^(x-original-|x-death|x-first-death-|x-last-death-|x-delivery-count|x-acquired-count)/;

/** Everything about the headers that could not be sent, or would not arrive as it was given. */
export function headerFaults(headers: unknown): EventFault[] {
  // No array, Map or Headers: their names and values are not where an object has them.
  const plain = Object.prototype.toString.call(headers) === '[object Object]';
  if (!plain)
    return [
      { at: 'headers', problem: `is ${kindOf(headers)}`, fix: 'give a plain object of names and values' },
    ];
  const all = Object.entries(headers as object);
  return [...all.flatMap(([name, value]) => faultsOf(name, value)), ...sizeFaults(all)];
}

function faultsOf(name: string, value: unknown): EventFault[] {
  const at = below('headers', name);
  const faults = [nameFault(at, name), valueFault(at, name, value)].filter((fault) => fault !== undefined);
  const bytes = sizeOf(name, value);
  if (faults.length === 0 && bytes > MAX_HEADER_BYTES)
    faults.push({
      at,
      problem: `has ${bytes} bytes, name and value together, more than the ${MAX_HEADER_BYTES} that the inbox keeps`,
      fix: 'put it into the body',
    });
  return faults;
}

function nameFault(at: string, name: string): EventFault | undefined {
  const lower = name.toLowerCase();
  if (COPIES.has(lower))
    return { at, problem: 'has a meaning for the broker, which would send copies', fix: 'use another name' };
  if (OURS.has(lower) || OF_TRANSPORT.test(lower))
    return { at, problem: 'is a header that the way itself writes', fix: 'use another name' };
  if (lower === HEADER.traceparent && name !== lower)
    return { at, problem: 'is not read in this spelling', fix: 'write traceparent in small letters' };
  if (name.startsWith('$') || name === '__proto__' || name === '_bsontype')
    return { at, problem: 'has a name that the inbox does not keep', fix: 'use another name' };
  return textFault(`the name of ${at}`, name, MAX_NAME_BYTES);
}

function valueFault(at: string, name: string, value: unknown): EventFault | undefined {
  if (name === HEADER.traceparent && !(typeof value === 'string' && TRACEPARENT.test(value)))
    return {
      at,
      problem: 'is not a W3C traceparent',
      fix: 'write it as 00-<32 hex digits>-<16>-<2>, or leave it out: the active span is taken',
    };
  switch (typeof value) {
    case 'string':
      return characterFault(at, value);
    case 'boolean':
      return undefined;
    case 'number':
      if (Number.isFinite(value) && Math.abs(value) <= Number.MAX_SAFE_INTEGER) return undefined;
      return {
        at,
        problem: `is ${Number.isFinite(value) ? 'a number beyond 2^53 - 1' : value}, which AMQP clients do not carry alike`,
        fix: 'write it as a string',
      };
    case 'undefined':
      return { at, problem: 'is undefined', fix: 'leave the header out' };
    default:
      return {
        at,
        problem: `is ${kindOf(value)}; a header is a string, a number or a boolean`,
        fix: types.isDate(value)
          ? 'write its toISOString()'
          : 'write it as a string, or put it into the body',
      };
  }
}

function sizeFaults(all: readonly (readonly [string, unknown])[]): EventFault[] {
  const faults: EventFault[] = [];
  const kept = all.filter(([name]) => name !== HEADER.traceparent).length;
  if (kept > MAX_HEADERS)
    faults.push({
      at: 'headers',
      problem: `are ${kept}, more than the ${MAX_HEADERS} that the inbox keeps`,
      fix: 'put what belongs to the event into the body',
    });
  const bytes = all.reduce((sum, [name, value]) => sum + sizeOf(name, value), 0);
  if (bytes > MAX_TOTAL_BYTES)
    faults.push({
      at: 'headers',
      problem: `have ${bytes} bytes in all, more than ${MAX_TOTAL_BYTES}`,
      fix: 'put what belongs to the event into the body',
    });
  return faults;
}

/** In bytes, as the inbox counts: name and value written out. What is no header value is a fault of its own. */
function sizeOf(name: string, value: unknown): number {
  const plain = typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean';
  return Buffer.byteLength(name) + (plain ? Buffer.byteLength(String(value)) : 0);
}
