import type { OutboxRow } from '../outbox/index.js';

/**
 * The rows that were sent and are not yet settled in the table. It outlives a session: what the broker confirmed
 * while Postgres was away is marked when it is back, and nothing in here is sent a second time.
 */
export interface Flight {
  readonly size: number;
  /** Of all bodies in flight. */
  readonly bytes: number;
  readonly ids: string[];
  has(id: string): boolean;
  /** A row of this key is in flight: no other may follow it before it is settled. */
  hasKey(key: string): boolean;
  /** How many rows of the slot are in flight: it is not given away before there are none. */
  inSlot(slot: number): number;
  add(row: OutboxRow): void;
  remove(row: OutboxRow): void;
}

export function createFlight(): Flight {
  const rows = new Map<string, OutboxRow>();
  const keys = new Set<string>();
  const slots = new Map<number, number>();
  let bytes = 0;
  const count = (slot: number, by: number): void => void slots.set(slot, (slots.get(slot) ?? 0) + by);
  return {
    get size() {
      return rows.size;
    },
    get bytes() {
      return bytes;
    },
    get ids() {
      return [...rows.keys()];
    },
    has: (id) => rows.has(id),
    hasKey: (key) => keys.has(key),
    inSlot: (slot) => slots.get(slot) ?? 0,
    add: (row) => {
      rows.set(row.id, row);
      if (row.key !== null) keys.add(row.key);
      bytes += row.body.length;
      count(row.slot, 1);
    },
    remove: (row) => {
      if (!rows.delete(row.id)) return;
      if (row.key !== null) keys.delete(row.key);
      bytes -= row.body.length;
      count(row.slot, -1);
    },
  };
}
