import { types } from 'node:util';
import { below, kindOf, type EventFault } from './fault.js';

/** Objects on the way from the body down to the value that is looked at. */
interface Step {
  readonly object: object;
  readonly key: string;
  readonly inArray: boolean;
}

/** The bytes of a body: those of a Buffer (or another Uint8Array) as they are, everything else as JSON. */
export function encodeBody(body: unknown): { readonly bytes: Buffer } | { readonly faults: EventFault[] } {
  if (Buffer.isBuffer(body)) return { bytes: body };
  if (body instanceof Uint8Array)
    return { bytes: Buffer.from(body.buffer, body.byteOffset, body.byteLength) };
  const read = toJson(body);
  return 'faults' in read ? read : { bytes: Buffer.from(read.json, 'utf8') };
}

/**
 * JSON.stringify, but for what it leaves out or turns into something else without a word: each of those is a fault,
 * with its path. Done in its own walk, so that `toJSON` and getters are asked once.
 */
function toJson(body: unknown): { readonly json: string } | { readonly faults: EventFault[] } {
  const faults: EventFault[] = [];
  const steps: Step[] = [];
  const look = function (this: object, key: string, value: unknown): unknown {
    while (steps.length > 0 && steps.at(-1)?.object !== this) steps.pop();
    const inArray = Array.isArray(this);
    const fault = faultOf((this as Record<string, unknown>)[key], value, steps);
    if (fault !== undefined) {
      faults.push({ at: pathOf(steps, key, inArray), ...fault });
      return null; // nothing below it is looked at
    }
    if (typeof value === 'object' && value !== null) steps.push({ object: value, key, inArray });
    return value;
  };
  try {
    const json = JSON.stringify(body, look);
    return faults.length > 0 ? { faults } : { json };
  } catch (error) {
    return { faults: [...faults, thrown(error, steps)] };
  }
}

type Problem = Omit<EventFault, 'at'>;

/** @param given what stands there, before its `toJSON`; @param value what would be written */
function faultOf(given: unknown, value: unknown, steps: readonly Step[]): Problem | undefined {
  switch (typeof value) {
    case 'undefined':
      return { problem: 'is undefined, which JSON does not have', fix: 'leave it out, or write null' };
    case 'function':
    case 'symbol':
      return { problem: `is a ${typeof value}, which JSON does not have`, fix: 'leave it out' };
    case 'bigint':
      return { problem: 'is a bigint, which JSON does not have', fix: 'write String(it)' };
    case 'number':
      return Number.isFinite(value) ? undefined : notFinite(value);
    case 'object':
      if (value === null) return types.isDate(given) ? INVALID_DATE : undefined;
      return faultOfObject(value, steps);
    default:
      return undefined;
  }
}

const INVALID_DATE: Problem = { problem: 'is an invalid Date', fix: 'give a valid one, or write null' };

function notFinite(value: number): Problem {
  return {
    problem: `is ${value}, which JSON turns into null`,
    fix: 'write a finite number, or null if that is meant',
  };
}

function faultOfObject(value: object, steps: readonly Step[]): Problem | undefined {
  if (steps.some(({ object }) => object === value))
    return { problem: 'contains itself', fix: 'write the id of what it refers to' };
  if (types.isNumberObject(value) && !Number.isFinite(Number(value))) return notFinite(Number(value));
  if (types.isBigIntObject(value) || types.isSymbolObject(value))
    return { problem: `is ${kindOf(value)} object, which JSON does not have`, fix: 'write String(it)' };
  if (types.isPromise(value)) return { problem: 'is a Promise, which JSON turns into {}', fix: 'await it' };
  if (
    types.isMap(value) ||
    types.isSet(value) ||
    types.isWeakMap(value) ||
    types.isWeakSet(value) ||
    types.isRegExp(value) ||
    types.isNativeError(value) ||
    types.isAnyArrayBuffer(value) ||
    types.isDataView(value)
  )
    return {
      problem: `is ${kindOf(value)}, whose content JSON leaves out`,
      fix: 'write it as a plain object, an array or a string',
    };
  const symbols = Object.getOwnPropertySymbols(value);
  if (symbols.some((symbol) => Object.prototype.propertyIsEnumerable.call(value, symbol)))
    return { problem: 'has a symbol for a key, which JSON leaves out', fix: 'use a string for the key' };
  return undefined;
}

function pathOf(steps: readonly Step[], key: string, inArray: boolean): string {
  // The first step is the body itself, whose key is ''.
  const names = [
    ...steps.map((step) => ({ name: step.key, index: step.inArray })),
    { name: key, index: inArray },
  ];
  return names
    .slice(1)
    .reduce((path, { name, index }) => (index ? `${path}[${name}]` : below(path, name)), 'body');
}

/** A `toJSON` or a getter of the caller's threw, or there is no end to it. */
function thrown(error: unknown, steps: readonly Step[]): EventFault {
  if (error instanceof RangeError && /call stack/i.test(error.message))
    return { at: 'body', problem: `is nested more than ${steps.length} deep`, fix: 'make it flatter' };
  if (error instanceof RangeError)
    return { at: 'body', problem: 'is too large for a string', fix: 'write a reference to it instead' };
  const message = error instanceof Error ? error.message : String(error);
  return { at: 'body', problem: `cannot be turned into JSON (${message})`, fix: 'give plain values' };
}
