import { expect, test } from 'vitest';
import { UsageError, wholeNumber } from '../../src/cli/command.js';
import { showBody } from '../../src/cli/outbox-view.js';
import { batchSize } from '../../src/cli/repair-run.js';
import { filterArguments, quoted } from '../../src/cli/repair-view.js';
import { endingNow } from '../../src/cli/republish.js';
import { readInstant, readSelection } from '../../src/cli/selection.js';
import { plain, shortened, span, table } from '../../src/cli/table.js';
import { likePattern } from '../../src/outbox/filter.js';

test.each([
  ['2026-03-01T12:00:00Z', { iso: '2026-03-01T12:00:00Z' }],
  ['2026-03-01 12:00+02:00', { iso: '2026-03-01 12:00+02:00' }],
  ['2026-03-01T12:00:00.123456Z', { iso: '2026-03-01T12:00:00.123456Z' }],
  ['90s', { secondsAgo: 90 }],
  ['2h', { secondsAgo: 7_200 }],
  ['2h ago', { secondsAgo: 7_200 }],
  ['1.5d ago', { secondsAgo: 129_600 }],
  ['now', { secondsAgo: 0 }],
])('the time %s', (text, instant) => {
  expect(readInstant('--from', text)).toEqual(instant);
});

test.each([
  ['2026-03-01T12:00:00', 'names no time zone'],
  ['2026-03-01T12:00:00.1234567Z', 'six digits'],
  ['2026-03-01', 'is neither'],
  ['yesterday', 'is neither'],
  ['2 weeks', 'is neither'],
  ['', 'is neither'],
])('the time %j is refused with the reason', (text, reason) => {
  expect(() => readInstant('--from', text)).toThrow(UsageError);
  expect(() => readInstant('--from', text)).toThrow(reason);
});

test('ids are UUIDs, each once, in any letter case', () => {
  const id = '0F4C1A52-9D0B-4C3E-8A53-0C8B7E6D5F41';
  expect(readSelection({}, [id, id.toLowerCase()])).toEqual({ eventIds: [id.toLowerCase()] });
  expect(() => readSelection({}, ['17'])).toThrow('"17" is not an event id');
  expect(() => readSelection({ key: 'a\0b' }, [])).toThrow('NUL');
});

test('an asterisk is any characters, and nothing else has a meaning', () => {
  expect(likePattern('order.*')).toBe('order.%');
  expect(likePattern('100%_a\\b*')).toBe('100\\%\\_a\\\\b%');
});

test('whole numbers keep their range', () => {
  expect(wholeNumber('--limit', '50', 1, 100)).toBe(50);
  for (const text of ['0', '101', '-1', '1e3', 'x', '', '1.5'])
    expect(() => wholeNumber('--limit', text, 1, 100)).toThrow('--limit takes a whole number from 1 to 100');
});

test('a body is text where it is UTF-8, also when it is cut within a character', () => {
  expect(showBody(Buffer.from('{"a":"ü"}'), 10)).toEqual({
    bytes: 10,
    encoding: 'utf8',
    content: '{"a":"ü"}',
    cut: false,
  });
  const cut = Buffer.from('aü').subarray(0, 2);
  expect(showBody(cut, 3)).toEqual({ bytes: 3, encoding: 'utf8', content: 'a', cut: true });
  // The same bytes as a whole body are no UTF-8.
  expect(showBody(cut, 2)).toMatchObject({ encoding: 'base64', content: cut.toString('base64'), cut: false });
});

test('what a producer wrote cannot steer the terminal', () => {
  expect(plain('a\u001b[31mb\nc\u202e')).toBe('a\\u001b[31mb\\u000ac\\u202e');
  expect(table(['A', 'B'], [['x\u0007', 'y']])).toBe('A        B\nx\\u0007  y\n');
  expect(shortened('abcdef', 4)).toBe('abc…');
  expect([5, 119, 600, 7_200, 200_000].map(span)).toEqual(['5 s', '119 s', '10 min', '2 h', '2 d']);
});

test('a command line means the same filter again', () => {
  expect(quoted('order.placed')).toBe('order.placed');
  expect(quoted("it's *")).toBe(`'it'\\''s *'`);
  expect(quoted('a\u0007')).toBe(`$'a\\u0007'`);
  expect(
    filterArguments({
      from: '2026-03-01T12:00:00.000000Z',
      to: '2026-03-01T13:00:00.000000Z',
      type: 'order.*',
    }),
  ).toBe(`--from 2026-03-01T12:00:00.000000Z --to 2026-03-01T13:00:00.000000Z --type 'order.*'`);
});

test('a window that ends in the future ends now', () => {
  const now = '2026-03-01T12:00:00.000000Z';
  const before = '2026-03-01T11:00:00.000000Z';
  expect(endingNow({ to: before }, now).to).toBe(before);
  expect(endingNow({ to: '2027-01-01T00:00:00.000000Z' }, now).to).toBe(now);
  expect(endingNow({ eventIds: [] }, now).to).toBe(now);
});

test('about ten batches a second, none larger than 500', () => {
  expect([1, 10, 50, 500, 100_000, undefined].map(batchSize)).toEqual([1, 1, 5, 50, 500, 500]);
});
