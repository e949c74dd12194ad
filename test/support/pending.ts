import type { Client } from 'pg';
import {
  listCandidates,
  loadRows,
  SLOTS,
  type Candidate,
  type CandidateQuery,
  type OutboxRow,
} from '../../src/outbox/index.js';

/** The candidates of every slot. */
export function candidates(session: Client, over: Partial<CandidateQuery> = {}): Promise<Candidate[]> {
  return listCandidates(session, {
    slots: Array.from({ length: SLOTS }, (_, slot) => ({ slot, afterKey: '' })),
    perSlot: 1_000,
    inFlight: [],
    parkedBlocks: false,
    ...over,
  });
}

/** The rows that a relay may publish now, in the order of their ids. */
export async function pendingRows(session: Client): Promise<OutboxRow[]> {
  const free = (await candidates(session)).filter(({ held }) => !held);
  return loadRows(
    session,
    free.map(({ id }) => id),
  );
}
