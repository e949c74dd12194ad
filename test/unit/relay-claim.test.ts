import { expect, test } from 'vitest';
import { SLOTS, type Candidate, type OutboxRow } from '../../src/outbox/index.js';
import {
  choose,
  FULL_BYTES,
  perSlot,
  pollMs,
  shareOf,
  type Asked,
  type Busy,
  type Room,
} from '../../src/relay/claim.js';
import { createFlight } from '../../src/relay/flight.js';

const idle: Busy = { has: () => false, hasKey: () => false };
const ROOM: Room = { rows: 10, bytes: FULL_BYTES };
const asked = (perSlot_ = 8, cursors: [number, string][] = [[0, '']]): Asked => ({
  cursors: new Map(cursors),
  perSlot: perSlot_,
});
const free = (id: number, over: Partial<Candidate> = {}): Candidate => ({
  lane: 'free',
  slot: 0,
  id: String(id),
  key: null,
  bytes: 10,
  held: false,
  ...over,
});
const keyed = (id: number, key: string, over: Partial<Candidate> = {}): Candidate =>
  free(id, { lane: 'keyed', key, ...over });
const waiting = (id: number, over: Partial<Candidate> = {}): Candidate =>
  free(id, { lane: 'waiting', ...over });
const ids = (candidates: Candidate[], room = ROOM, busy = idle): string[] => [
  ...choose(candidates, busy, room, asked()).ids,
];

test('the oldest go first, by number and not by text', () => {
  expect(ids([free(10), keyed(9, 'a'), free(100), free(11)], { ...ROOM, rows: 3 })).toEqual([
    '9',
    '10',
    '11',
  ]);
});

test('what is held, in flight, or of a key in flight stays', () => {
  const busy = { has: (id: string) => id === '2', hasKey: (key: string) => key === 'b' };
  expect(
    ids([free(1), free(2), keyed(3, 'b'), keyed(4, 'c', { held: true }), keyed(5, 'd')], ROOM, busy),
  ).toEqual(['1', '5']);
});

test('one row of a key at a time, also when one of them waited', () => {
  expect(ids([waiting(7, { key: 'a' }), keyed(3, 'a')])).toHaveLength(1);
});

test('rows that come back take half of the room while others want it, and all of it otherwise', () => {
  const again = Array.from({ length: 20 }, (_, n) => waiting(n + 1));
  const fresh = Array.from({ length: 20 }, (_, n) => free(n + 100));
  const both = ids([...again, ...fresh]);
  expect(both.filter((id) => Number(id) >= 100)).toHaveLength(5);
  expect(both).toHaveLength(10);
  expect(ids(again)).toHaveLength(10);
});

test('bodies are bounded together; one larger than all the room goes alone', () => {
  const big = (id: number): Candidate => free(id, { bytes: FULL_BYTES / 2 + 1 });
  expect(ids([big(1), big(2)])).toEqual(['1']);
  expect(ids([big(1)], { rows: 10, bytes: FULL_BYTES / 2 })).toEqual([]);
  expect(ids([free(1, { bytes: FULL_BYTES * 2 }), free(2)])).toEqual(['1']);
});

test('a walk goes on behind what was chosen or cannot go; what found no room comes first; the end begins anew', () => {
  const walk = [keyed(1, 'a'), keyed(2, 'b', { held: true }), keyed(9, 'c'), keyed(3, 'd')];
  const next = (room: number, steps: number): string | undefined =>
    choose(walk, idle, { ...ROOM, rows: room }, asked(steps, [[0, '0']])).cursors.get(0);
  expect(next(10, 4)).toBe('d'); // all went, and there may be more
  expect(next(10, 8)).toBe(''); // fewer than asked for: the end
  expect(next(2, 4)).toBe('b'); // c found no room
  expect(next(0, 4)).toBe('0'); // a found none: the same again
  expect(choose([], idle, ROOM, asked(4, [[0, 'x'], [1, '']])).cursors).toEqual(new Map([[0, ''], [1, '']])); // prettier-ignore
});

test('so many rows of each slot that an uneven backlog still fills the window', () => {
  expect(perSlot(400, 32)).toBe(16);
  expect(perSlot(200, 1)).toBe(250);
  expect(perSlot(1, 32)).toBe(8);
  expect(perSlot(200, 0)).toBe(250);
});

test('the wait grows with the silence, from 5 ms to its cap', () => {
  expect([0, 20, 200, 1_000, 4_000, 60_000].map((idleMs) => pollMs(idleMs, 250))).toEqual([
    5, 5, 10, 50, 200, 250,
  ]);
});

test('shares are fair, and together hold every slot', () => {
  for (let relays = 1; relays <= 40; relays += 1) {
    const { take } = shareOf(relays, 0);
    expect(take * relays).toBeGreaterThanOrEqual(SLOTS);
    expect(take).toBeLessThan(SLOTS / relays + 1);
  }
  expect(shareOf(2, 32)).toEqual({ take: 0, release: 16 });
  expect(shareOf(4, 8)).toEqual({ take: 0, release: 0 });
  expect(shareOf(0, 0)).toEqual({ take: 32, release: 0 });
});

test('the flight counts rows, bytes, keys and slots, and forgets a row once', () => {
  const flight = createFlight();
  const row = { id: '1', key: 'a', slot: 3, body: Buffer.alloc(5) } as unknown as OutboxRow;
  flight.add(row);
  expect([flight.size, flight.bytes, flight.has('1'), flight.hasKey('a'), flight.inSlot(3)]).toEqual([1, 5, true, true, 1]); // prettier-ignore
  flight.remove(row);
  flight.remove(row);
  expect([flight.size, flight.bytes, flight.has('1'), flight.hasKey('a'), flight.inSlot(3)]).toEqual([0, 0, false, false, 0]); // prettier-ignore
});
