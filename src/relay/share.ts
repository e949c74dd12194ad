import {
  countRelays,
  joinRelays,
  leaveRelays,
  releaseSlots,
  SLOTS,
  takeSlots,
  type OutboxSession,
} from '../outbox/index.js';
import type { Log } from '../runtime/log.js';
import { shareOf } from './claim.js';
import type { Flight } from './flight.js';

/** The slots of this relay, for the life of one session. */
export interface Share {
  /** The slots that may be claimed from, with the key after which each walk goes on. */
  readonly cursors: ReadonlyMap<number, string>;
  setCursor(slot: number, afterKey: string): void;
  /**
   * Looks after the share when it is time to: takes slots that are free, gives back what is too much once nothing of
   * it is in flight. Also the sign of life that keeps the session (see `joinRelays`).
   * @param fit false: this relay cannot publish, and leaves its slots to those who can
   */
  keep(fit: boolean): Promise<void>;
  /** Runs a statement on the session whose answer shows that it, and with it every lock, was there when it was sent. */
  prove<T>(statement: () => Promise<T>): Promise<T>;
  /**
   * The server cannot have ended the session for its silence yet. A process that was frozen for longer sends nothing
   * more, though it may not have read yet that its session is gone.
   */
  isFresh(): boolean;
}

const EVERY_MS = 1_500;
/** Below the idle_session_timeout of `joinRelays`. */
const FRESH_MS = 5_000;

export function createShare(session: OutboxSession, flight: Flight, log: Log): Share {
  const cursors = new Map<number, string>();
  /** Given up, but something of them is still in flight. */
  const leaving = new Set<number>();
  let joined = false;
  let last = -Infinity;
  let told = '';
  let provenAt = -Infinity;

  const prove = async <T>(statement: () => Promise<T>): Promise<T> => {
    const at = performance.now();
    const answer = await statement();
    provenAt = Math.max(provenAt, at);
    return answer;
  };

  const release = async (): Promise<void> => {
    const drained = [...leaving].filter((slot) => flight.inSlot(slot) === 0);
    if (drained.length === 0) return;
    await releaseSlots(session.client, drained);
    for (const slot of drained) leaving.delete(slot);
  };
  const leave = async (): Promise<void> => {
    cursors.clear();
    leaving.clear();
    joined = false;
    await leaveRelays(session.client);
    log.info({ event: 'relay.slots', slots: [], relays: 0 }, 'cannot publish: leaves its slots to others');
    told = '';
  };
  const balance = async (): Promise<void> => {
    if (!joined) {
      await joinRelays(session.client);
      joined = true;
    }
    const relays = await prove(() => countRelays(session.client));
    const { take, release: surplus } = shareOf(relays, cursors.size);
    for (const slot of [...cursors.keys()].slice(cursors.size - surplus)) {
      cursors.delete(slot);
      leaving.add(slot);
    }
    if (take > 0) {
      const others = Array.from({ length: SLOTS }, (_, slot) => slot).filter(
        (slot) => !cursors.has(slot) && !leaving.has(slot),
      );
      for (const slot of await takeSlots(session.client, others, take)) cursors.set(slot, '');
    }
    const slots = [...cursors.keys()].sort((a, b) => a - b);
    const now = `${relays}: ${slots.join(' ')}`;
    if (now !== told)
      log.info({ event: 'relay.slots', slots, relays }, `owns ${slots.length} of ${SLOTS} slots`);
    told = now;
  };

  return {
    cursors,
    setCursor: (slot, afterKey) => {
      if (cursors.has(slot)) cursors.set(slot, afterKey);
    },
    keep: async (fit) => {
      if (fit !== joined || performance.now() - last >= EVERY_MS) {
        last = performance.now();
        if (fit) await balance();
        else if (joined) await leave();
        else await countRelays(session.client);
      }
      await release();
    },
    prove,
    isFresh: () => performance.now() - provenAt < FRESH_MS,
  };
}
