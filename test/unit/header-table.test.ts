import { describe, expect, test } from 'vitest';
import { entriesOf, MAX_DEPTH } from '../../src/broker/header-table.js';
import { decodedOf, frameMender, undecodableOf } from '../../src/broker/mend-headers.js';
import { contentHeader, frame, nested, tableEntry } from '../support/raw-amqp.js';

const flag = Buffer.from('\u0001at\u0001', 'latin1');
const verdicts = (...entries: Buffer[]): boolean[] =>
  entriesOf(Buffer.concat(entries)).map(({ decodable }) => decodable);

test('each entry is judged alone: depth costs no stack, and hides no neighbour', () => {
  const deepest = tableEntry('deep', nested(MAX_DEPTH - 1));
  expect(verdicts(flag, deepest, flag)).toEqual([true, true, true]);
  expect(verdicts(flag, tableEntry('deep', nested(MAX_DEPTH)), flag)).toEqual([true, false, true]);
  expect(verdicts(tableEntry('deep', nested(18_000)), flag)).toEqual([false, true]);
  expect(verdicts()).toEqual([]);
});

test.each([
  ['an unknown type', Buffer.from('\u0001aL\0\0\0\0\0\0\0\u0001', 'latin1')],
  ['a value that is cut off', Buffer.from('\u0001aS\0\0\0\u0009x', 'latin1')],
  ['a name that is cut off', Buffer.from('\u0009ab', 'latin1')],
  ['a name without a value', Buffer.from('\u0001a', 'latin1')],
])('%s: nobody knows where the next entry begins', (_, bytes) => {
  expect(verdicts(flag, bytes)).toEqual([true, false]);
});

test.each(['t\u0001', 'b\0', 's\0\0', 'I\0\0\0\0', 'l\0\0\0\0\0\0\0\0', 'd\0\0\0\0\0\0\0\0', 'D\0\0\0\0\0', 'T\0\0\0\0\0\0\0\0', 'V', 'S\0\0\0\u0001x', 'x\0\0\0\u0001x', 'F\0\0\0\u0004\u0001at\0', 'A\0\0\0\u0002t\0'])(
  'the value %j is known',
  (value) => {
    expect(verdicts(Buffer.from(`\u0001a${value}`, 'latin1'), flag)).toEqual([true, true]);
  },
); // prettier-ignore

describe('frames', () => {
  const good = contentHeader(1, flag, 'm-1', 'order.placed', 5);
  const deep = contentHeader(
    1,
    Buffer.concat([flag, tableEntry('deep', nested(9_000))]),
    'm-2',
    'order.placed',
    5,
  );
  const body = frame(3, 1, Buffer.from('hello'));
  const whole = Buffer.concat([frame(8, 0, Buffer.alloc(0)), good, body, deep, body]);

  test.each([1, 7, 1_000, 100_000])(
    'in chunks of %i bytes: only what cannot be decoded is changed',
    (size) => {
      const mend = frameMender();
      const out: Buffer[] = [];
      for (let at = 0; at < whole.length; at += size) out.push(mend(whole.subarray(at, at + size)));
      const mended = Buffer.concat(out);
      const before = whole.length - deep.length - body.length;
      expect(mended.subarray(0, before).equals(whole.subarray(0, before))).toBe(true);
      const header = mended.subarray(before, mended.length - body.length);
      expect(header.readUInt32BE(3)).toBe(header.length - 8);
      expect(header.at(-1)).toBe(0xce);
      expect(header.includes(nested(9_000))).toBe(true); // the table as it was, as bytes
      expect(header.includes(Buffer.from('\u0002\u0003m-2\u000corder.placed\u00ce', 'latin1'))).toBe(true);
      expect(mended.subarray(-body.length).equals(body)).toBe(true);
    },
  );
});

test('headers without the mark are as they are', () => {
  expect(undecodableOf({ 'undecodable-x': Buffer.from('x') })).toBeUndefined();
  expect(undecodableOf(undefined)).toBeUndefined();
  expect(decodedOf({ a: 1 })).toEqual({ a: 1 });
});
