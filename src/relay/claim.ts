import { SLOTS, type Candidate } from '../outbox/index.js';

/** What may still go into flight. */
export interface Room {
  readonly rows: number;
  readonly bytes: number;
}

/** What is in flight, as far as the choice has to know. */
export interface Busy {
  has(id: string): boolean;
  hasKey(key: string): boolean;
}

export interface Choice {
  readonly ids: readonly string[];
  /** For each slot: the key after which its walk goes on; '' begins anew. */
  readonly cursors: ReadonlyMap<number, string>;
}

/** How the candidates were asked for. */
export interface Asked {
  readonly cursors: ReadonlyMap<number, string>;
  readonly perSlot: number;
}

/**
 * Which candidates go now: at most one of a key and none whose key is held or in flight, oldest first. Rows that
 * come back after a failure take no more than half of the room while others want it: a whole type that is bound
 * nowhere must not be tried again and again in front of everything else.
 */
export function choose(candidates: readonly Candidate[], busy: Busy, room: Room, asked: Asked): Choice {
  const free = candidates.filter((row) => isEligible(row, busy)).sort((a, b) => Number(a.id) - Number(b.id));
  const [waiting, fresh] = [
    free.filter(({ lane }) => lane === 'waiting'),
    free.filter(({ lane }) => lane !== 'waiting'),
  ];
  const half = Math.ceil(room.rows / 2);
  const chosen: Candidate[] = [];
  const keys = new Set<string>();
  let bytes = 0;
  for (const row of [...waiting.slice(0, half), ...fresh, ...waiting.slice(half)]) {
    if (chosen.length >= room.rows) break;
    if (row.key !== null && keys.has(row.key)) continue;
    // One that is larger than all the room goes when nothing else is in flight.
    if (bytes + row.bytes > room.bytes && (chosen.length > 0 || room.bytes < FULL_BYTES)) break;
    chosen.push(row);
    bytes += row.bytes;
    if (row.key !== null) keys.add(row.key);
  }
  const ids = new Set(chosen.map(({ id }) => id));
  return { ids: [...ids], cursors: nextCursors(candidates, busy, ids, asked) };
}

/** Bodies in flight at the same time; a window of the largest would be gigabytes. */
export const FULL_BYTES = 32 * 1024 * 1024;

function isEligible(row: Candidate, busy: Busy): boolean {
  return !row.held && !busy.has(row.id) && (row.key === null || !busy.hasKey(row.key));
}

/**
 * A walk goes on behind what was chosen or cannot go now; what only found no room comes first the next time. One
 * that found fewer keys than it was asked for has come to the end, and begins anew.
 */
function nextCursors(
  candidates: readonly Candidate[],
  busy: Busy,
  chosen: ReadonlySet<string>,
  { cursors, perSlot: steps }: Asked,
): Map<number, string> {
  const walks = new Map<number, Candidate[]>([...cursors.keys()].map((slot) => [slot, []]));
  for (const row of candidates) if (row.lane === 'keyed') walks.get(row.slot)?.push(row);
  return new Map(
    [...walks].map(([slot, walk]) => {
      const left = walk.findIndex((row) => !chosen.has(row.id) && isEligible(row, busy));
      if (left === 0) return [slot, cursors.get(slot) ?? ''];
      if (left === -1 && walk.length < steps) return [slot, ''];
      return [slot, walk.at(left === -1 ? -1 : left - 1)?.key ?? ''];
    }),
  );
}

/** How many rows of each slot to ask for, so that `rows` are found even where they lie unevenly. */
export function perSlot(rows: number, slots: number): number {
  return Math.max(8, Math.ceil((1.25 * rows) / Math.max(1, slots)));
}

/**
 * The wait until the next look, in milliseconds: a twentieth of the time that nothing came, from 5 ms up to `capMs`. A
 * steady trickle is then seen within a few milliseconds, and an idle relay hardly asks.
 */
export function pollMs(idleForMs: number, capMs: number): number {
  return Math.min(capMs, Math.max(5, Math.round(idleForMs / 20)));
}

/** What one of `relays` that owns `own` slots does for a fair share: none holds more than its part, rounded up. */
export function shareOf(relays: number, own: number): { readonly take: number; readonly release: number } {
  const fair = Math.ceil(SLOTS / Math.max(1, relays));
  return { take: Math.max(0, fair - own), release: Math.max(0, own - fair) };
}
