import type { Outcome, Publisher } from '../broker/index.js';
import type { OutboxRow, RowFailure } from '../outbox/index.js';
import { sparsely, type Log } from '../runtime/log.js';
import { judge, limitIn, toPublication, unsendable, type BrokerLimit, type RelayPolicy } from './decide.js';
import type { Flight } from './flight.js';
import type { Ledger } from './ledger.js';

export interface SenderDeps {
  readonly publisher: Publisher;
  readonly policy: RelayPolicy;
  /** Rows that may be sent and not yet settled in the table. */
  readonly window: number;
  readonly flight: Flight;
  readonly ledger: Ledger;
  readonly log: Log;
  readonly random: () => number;
  /** Rows have left the flight, or there are suspects. */
  readonly onFreed: () => void;
}

/** Publishes what was claimed, as far as the window allows, and hands what became of it to the ledger. */
export interface Sender {
  /** Claimed and not sent yet. */
  readonly unsent: number;
  take(rows: readonly OutboxRow[]): void;
  /** Sends what there is room for. @param mayGo false: the row is left to whoever owns its slot now */
  pump(mayGo: (row: OutboxRow) => boolean): void;
  /** Forgets what was not sent: it is claimed again. */
  drop(): void;
  /** There are rows over one of which the broker closed the channel. */
  suspecting(): boolean;
  /** The next suspect, with nothing else in flight: the one that closes the channel again is the guilty one. */
  trySuspect(mayGo: (row: OutboxRow) => boolean): void;
  /** Forgets the suspects. */
  acquit(): void;
  /** Rows were not sent, or nobody knows: true once. */
  again(): boolean;
}

export function createSender(deps: SenderDeps): Sender {
  const { publisher, policy, window, flight, ledger, log, onFreed } = deps;
  let unsent: OutboxRow[] = [];
  /** They stay in flight, so that nobody claims them. */
  const suspects: OutboxRow[] = [];
  let solo = false;
  let again = false;
  let limit: BrokerLimit | undefined;
  const sparse = sparsely(10_000);

  const send = async (row: OutboxRow, alone: boolean): Promise<void> => {
    const detail = unsendable(row, policy, limit);
    const outcome: Outcome =
      detail === undefined ? await publisher.publish(toPublication(row)) : { kind: 'refused', detail };
    if (outcome.kind === 'unknown') limit = limitIn(outcome.detail) ?? limit;
    const verdict = judge(row, outcome, alone, policy, deps.random());
    switch (verdict.kind) {
      case 'mark':
        ledger.confirmed(row);
        return;
      case 'failure':
        tell(row, verdict.failure);
        ledger.failed(row, verdict.failure);
        return;
      case 'suspect':
        suspects.push(row);
        break;
      case 'again':
        again = true;
        flight.remove(row);
    }
    onFreed();
  };

  const tell = (row: OutboxRow, failure: RowFailure): void => {
    const fields = {
      messageId: row.eventId,
      type: row.type,
      attempt: row.attempts + 1,
      reason: failure.error,
    };
    if (failure.retryInMs === null)
      log.error(
        { event: 'relay.parked', ...fields },
        'the row is parked: it is not published until someone acts (twinbox outbox retry)',
      );
    else
      sparse(row.type, () =>
        log.warn(
          { event: 'relay.deferred', ...fields, retryInMs: failure.retryInMs },
          'not routed or not stored; later again (told once in ten seconds for a type)',
        ),
      );
  };

  return {
    get unsent() {
      return unsent.length;
    },
    take: (rows) => {
      for (const row of rows) flight.add(row);
      unsent.push(...rows);
    },
    pump: (mayGo) => {
      const room = window - (flight.size - unsent.length);
      if (room <= 0 || suspects.length > 0 || solo || again) return;
      for (const row of unsent.splice(0, room)) {
        if (mayGo(row)) void send(row, false);
        else flight.remove(row);
      }
    },
    drop: () => {
      for (const row of unsent) flight.remove(row);
      unsent = [];
    },
    suspecting: () => suspects.length > 0 || solo,
    trySuspect: (mayGo) => {
      if (solo || flight.size > suspects.length) return;
      const row = suspects.shift() as OutboxRow;
      if (!mayGo(row)) {
        flight.remove(row);
        return;
      }
      solo = true;
      void send(row, true).finally(() => {
        solo = false;
        onFreed();
      });
    },
    acquit: () => {
      for (const row of suspects.splice(0)) flight.remove(row);
    },
    again: () => {
      const was = again;
      again = false;
      return was;
    },
  };
}
