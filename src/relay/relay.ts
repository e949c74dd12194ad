import type { Publisher } from '../broker/index.js';
import { isBusy, listCandidates, loadRows, type OutboxRow, type OutboxSession } from '../outbox/index.js';
import { createBell } from '../runtime/bell.js';
import { describe } from '../runtime/errors.js';
import { sparsely, type Log } from '../runtime/log.js';
import type { Probe } from '../runtime/probe.js';
import { choose, FULL_BYTES, perSlot, pollMs } from './claim.js';
import type { RelayPolicy } from './decide.js';
import { createFlight } from './flight.js';
import { createLedger } from './ledger.js';
import { createSender } from './sender.js';
import { createShare, type Share } from './share.js';

export interface RelayDeps {
  readonly publisher: Publisher;
  /** Why nothing may be claimed now (no channel, a blocked broker); undefined when it may. */
  readonly held: () => string | undefined;
  readonly policy: RelayPolicy;
  /** Rows in flight: sent, and not yet settled in the table. */
  readonly window: number;
  /** The longest wait between two looks. */
  readonly pollMs: number;
  readonly log: Log;
  readonly probe: Probe;
  readonly random: () => number;
}

export interface Relay {
  /**
   * Relays the slots that this session can get, until `signal` aborts and what was in flight is settled.
   * @throws when the session is gone or Postgres refuses: what is in flight then stays, for the next session
   */
  run(session: OutboxSession, signal: AbortSignal): Promise<void>;
  owns(slot: number): boolean;
}

/** One that cannot publish for so long leaves its slots to others. */
const UNFIT_AFTER_MS = 5_000;
/** A channel that just closed is not asked again in the same breath. */
const AGAIN_MS = 50;
/** The longest wait for something in flight; it rings. */
const WAIT_MS = 250;

/**
 * Claim, publish within the window, mark what was confirmed: each while the others are under way. Up to two windows are
 * claimed ahead, so that a confirm makes room for a row that is there already.
 */
export function createRelay(deps: RelayDeps): Relay {
  const { publisher, held, policy, window, log, probe, random } = deps;
  const flight = createFlight();
  const freed = createBell();
  const sparse = sparsely(10_000);
  let share: Share | undefined;

  /** The slot is ours, as far as anyone can know: the session was alive a moment ago. */
  const isOurs = ({ slot }: OutboxRow): boolean => share?.isFresh() === true && share.cursors.has(slot);
  const onFreed = (): void => {
    if (held() === undefined && !ledger.stuck()) sender.pump(isOurs);
    freed.ring();
  };
  const ledger = createLedger({ flight, log, probe, onSettled: onFreed });
  const sender = createSender({ publisher, policy, window, flight, ledger, log, random, onFreed });

  const claim = async (session: OutboxSession, from: Share): Promise<OutboxRow[]> => {
    const room = { rows: 3 * window - flight.size, bytes: FULL_BYTES - flight.bytes };
    const asked = { cursors: new Map(from.cursors), perSlot: perSlot(room.rows, from.cursors.size) };
    const candidates = await from.prove(() =>
      listCandidates(session.client, {
        slots: [...asked.cursors].map(([slot, afterKey]) => ({ slot, afterKey })),
        perSlot: asked.perSlot,
        inFlight: flight.ids,
        parkedBlocks: policy.parkedBlocks,
      }),
    );
    const { ids, cursors } = choose(candidates, flight, room, asked);
    for (const [slot, afterKey] of cursors) from.setCursor(slot, afterKey);
    return ids.length === 0 ? [] : loadRows(session.client, ids);
  };

  /** A table that is locked for a moment (a migration, an index) is no reason to give the session up. */
  const claimUnlessBusy = async (session: OutboxSession, from: Share): Promise<OutboxRow[]> => {
    try {
      return await claim(session, from);
    } catch (error) {
      if (session.gone.aborted || !isBusy(error)) throw error;
      sparse('claim', () =>
        log.warn(
          { event: 'relay.claim.failed', err: error },
          `cannot claim, trying again: ${describe(error)}`,
        ),
      );
      return [];
    }
  };

  /** @param over no more is claimed @param broken the session is of no use any more */
  const feed = async (
    session: OutboxSession,
    from: Share,
    over: AbortSignal,
    broken: AbortSignal,
  ): Promise<void> => {
    let [busyAt, readyAt] = [performance.now(), performance.now()];
    while (!over.aborted) {
      if (publisher.ready()) readyAt = performance.now();
      await from.keep(performance.now() - readyAt < UNFIT_AFTER_MS);
      const why = held() !== undefined || sender.suspecting();
      if (why) sender.drop();
      if (held() !== undefined || ledger.stuck()) await freed.wait(deps.pollMs);
      else if (sender.again()) await freed.wait(AGAIN_MS);
      else if (sender.suspecting()) {
        sender.trySuspect(isOurs);
        if (sender.suspecting()) await freed.wait(WAIT_MS);
      } else if (sender.unsent >= window || flight.bytes > FULL_BYTES / 2) {
        sender.pump(isOurs);
        await freed.wait(WAIT_MS);
      } else {
        const rows = await claimUnlessBusy(session, from);
        if (rows.length > 0) {
          probe(
            'relay.claimed',
            rows.map(({ eventId }) => eventId),
          );
          busyAt = performance.now();
          sender.take(rows);
        }
        sender.pump(isOurs);
        if (rows.length === 0 && [...from.cursors.values()].every((key) => key === ''))
          await freed.wait(pollMs(performance.now() - busyAt, deps.pollMs));
      }
    }
    // The last confirms and marks. Asking for the share meanwhile is the sign of life that keeps the session.
    sender.drop();
    sender.acquit();
    while (flight.size > 0 && !broken.aborted) {
      await from.keep(true);
      await freed.wait(WAIT_MS);
    }
  };

  return {
    run: async (session, signal) => {
      share = createShare(session, flight, log);
      const ending = new AbortController();
      const broken = AbortSignal.any([session.gone, ending.signal]);
      const kept = ledger.keep(session, broken);
      const fed = feed(session, share, AbortSignal.any([signal, broken]), broken);
      try {
        await Promise.race([fed, kept]);
      } finally {
        ending.abort();
        freed.ring();
        await Promise.allSettled([fed, kept]);
        // What was not sent belongs to whoever owns its slot next.
        share = undefined;
        sender.drop();
        sender.acquit();
      }
    },
    owns: (slot) => share?.cursors.has(slot) === true,
  };
}
