import {
  isBusy,
  markPublished,
  recordFailures,
  type OutboxRow,
  type OutboxSession,
  type RowFailure,
} from '../outbox/index.js';
import { createBell } from '../runtime/bell.js';
import { describe } from '../runtime/errors.js';
import type { Log } from '../runtime/log.js';
import { pause } from '../runtime/loop.js';
import type { Probe } from '../runtime/probe.js';
import type { Flight } from './flight.js';

/**
 * What became of the rows in flight, until the table knows it. A confirmed id stays here until it is marked, also when
 * the session is lost in between: only the mark is tried again, the row is never sent again for it.
 */
export interface Ledger {
  confirmed(row: OutboxRow): void;
  failed(row: OutboxRow, failure: RowFailure): void;
  /** The last statement was refused: nothing new is claimed before one succeeds. */
  stuck(): boolean;
  /**
   * Writes what is known into the table, what comes together in one statement, until `over` aborts.
   * @throws when the session is no good: a read-only server, a lost connection
   */
  keep(session: OutboxSession, over: AbortSignal): Promise<void>;
}

export interface LedgerDeps {
  readonly flight: Flight;
  readonly log: Log;
  readonly probe: Probe;
  /** Rows have left the flight. */
  readonly onSettled: () => void;
}

const RETRY_MS = 200;
/** Confirms come in bursts: while others are awaited, so few wait so long for company. */
const FEW = 50;
const LINGER_MS = 3;

export function createLedger({ flight, log, probe, onSettled }: LedgerDeps): Ledger {
  let marks: OutboxRow[] = [];
  let failures: { row: OutboxRow; failure: RowFailure }[] = [];
  let refused = false;
  const arrived = createBell();

  const write = async (session: OutboxSession): Promise<void> => {
    const [marking, failing] = [marks.length, failures.length];
    if (marking > 0) {
      const rows = marks.slice(0, marking);
      const ids = rows.map(({ eventId }) => eventId);
      probe('relay.confirmed', ids);
      await markPublished(
        session.client,
        rows.map(({ id }) => id),
      );
      marks = marks.slice(marking);
      for (const row of rows) flight.remove(row);
      probe('relay.marked', ids);
    }
    if (failing > 0) {
      const rows = failures.slice(0, failing);
      await recordFailures(
        session.client,
        rows.map(({ failure }) => failure),
      );
      failures = failures.slice(failing);
      for (const { row } of rows) flight.remove(row);
    }
    onSettled();
  };

  return {
    confirmed: (row) => {
      marks.push(row);
      arrived.ring();
    },
    failed: (row, failure) => {
      failures.push({ row, failure });
      arrived.ring();
    },
    stuck: () => refused,
    keep: async (session, over) => {
      while (!over.aborted) {
        const known = marks.length + failures.length;
        if (known === 0) {
          await arrived.wait(250);
          continue;
        }
        if (known < FEW && flight.size > known) await pause(LINGER_MS, over);
        try {
          await write(session);
          refused = false;
        } catch (error) {
          refused = true;
          if (session.gone.aborted || !isBusy(error)) throw error;
          log.warn(
            { event: 'relay.mark.failed', err: error, rows: marks.length },
            `cannot mark, trying again: ${describe(error)}`,
          );
          await pause(RETRY_MS, over);
        }
      }
    },
  };
}
