import type { PublisherState, QueueDepth } from '../broker/index.js';
import type { InboxCounts } from '../inbox/index.js';
import { SLOTS, type Backlog, type SlotOwner } from '../outbox/index.js';
import { count, span } from './table.js';

/** What a store said, or why it said nothing. */
export type Reading<T> = { readonly value: T } | { readonly fault: string };

/** Everything that `twinbox status` asked for. */
export interface StatusReadings {
  readonly outbox: Reading<Backlog>;
  readonly slots: Reading<readonly SlotOwner[]>;
  readonly broker: Reading<PublisherState>;
  /** What other producers sent and nothing was bound for. */
  readonly unrouted: Reading<QueueDepth>;
  readonly actors: readonly {
    readonly name: string;
    readonly mailbox: Reading<QueueDepth>;
    readonly dlq: Reading<QueueDepth>;
    readonly inbox: Reading<InboxCounts>;
  }[];
}

export interface StatusReport {
  /** Empty: all is well. */
  readonly problems: readonly string[];
  /** One for each hop: its name, and how it is. */
  readonly lines: readonly (readonly [hop: string, text: string])[];
}

/** A row that could have been published for so long is late, whatever the reason. */
const LATE_SECONDS = 300;
/** Slots change hands in a few seconds. */
const UNOWNED_SECONDS = 30;

/** What the readings mean for a person: a line a hop, and what needs somebody. */
export function reportStatus(readings: StatusReadings): StatusReport {
  const parts = [
    outboxPart(readings.outbox),
    slotsPart(readings.slots, readings.outbox),
    brokerPart(readings.broker),
    unroutedPart(readings.unrouted),
    ...readings.actors.flatMap(({ name, mailbox, dlq, inbox }) => [
      mailboxPart(name, mailbox),
      dlqPart(name, dlq),
      inboxPart(name, inbox),
    ]),
  ];
  return {
    // A broker that is away is one problem, and not one for each of its queues.
    problems: [...new Set(parts.flatMap(({ problems }) => problems))],
    lines: parts.map(({ hop, text }) => [hop, text] as const),
  };
}

interface Part {
  readonly hop: string;
  readonly text: string;
  readonly problems: readonly string[];
}

function part<T>(
  hop: string,
  reading: Reading<T>,
  say: (value: T) => { text: string; problems?: readonly (string | false | undefined)[] },
): Part {
  if ('fault' in reading) return { hop, text: reading.fault, problems: [reading.fault] };
  const { text, problems = [] } = say(reading.value);
  return { hop, text, problems: problems.filter((problem) => typeof problem === 'string') };
}

function outboxPart(outbox: Reading<Backlog>): Part {
  return part('outbox', outbox, (rows) => {
    const age = rows.oldestSeconds === null ? '' : `, the oldest for ${span(rows.oldestSeconds)}`;
    const reasons = rows.parkedBy.map(({ reason, count: number }) => `${reason} ${number}`).join(', ');
    return {
      text:
        `${rows.andMore ? 'more than ' : ''}${rows.due + rows.retrying} pending${age} (${rows.due} due, ${rows.retrying} tried and waiting) · ` +
        `${rows.delayed} for later · ${rows.parked} parked${reasons === '' ? '' : ` (${reasons})`} · ` +
        `${rows.publishedLastMinute} published in the last minute`,
      problems: [
        rows.parked > 0 && `${count(rows.parked, 'row')} parked (twinbox outbox parked)`,
        (rows.oldestSeconds ?? 0) > LATE_SECONDS && `a row is late by ${span(rows.oldestSeconds ?? 0)}`,
      ],
    };
  });
}

function slotsPart(slots: Reading<readonly SlotOwner[]>, outbox: Reading<Backlog>): Part {
  return part('relays', slots, (owners) => {
    const owned = new Set(owners.flatMap((owner) => owner.slots));
    const free = Array.from({ length: SLOTS }, (_, slot) => slot).filter((slot) => !owned.has(slot));
    const waitsFor = 'value' in outbox ? (outbox.value.oldestSeconds ?? 0) : 0;
    const shares = owners.map(({ name, pid, slots: held }) => `${name ?? `pid ${pid}`} ${held.length}`);
    return {
      text: `${owned.size} of ${SLOTS} ordering slots owned${shares.length === 0 ? '' : `: ${shares.join(', ')}`}`,
      problems: [
        owned.size === 0 && 'no relay publishes (is one running, and can it reach the broker?)',
        owned.size > 0 &&
          free.length > 0 &&
          waitsFor > UNOWNED_SECONDS &&
          `nobody owns the slots ${free.join(', ')}`,
      ],
    };
  });
}

function brokerPart(broker: Reading<PublisherState>): Part {
  return part('broker', broker, (state) =>
    state.blocked
      ? {
          text: `blocks publishers: ${state.reason}`,
          problems: [`the broker blocks publishers (${state.reason})`],
        }
      : { text: 'takes messages' },
  );
}

function mailboxPart(actor: string, mailbox: Reading<QueueDepth>): Part {
  return part(`mailbox ${actor}`, mailbox, (depth) => {
    if ('fault' in depth)
      return depth.fault === 'missing'
        ? {
            text: 'missing',
            problems: [`the mailbox of ${actor} is missing (start ingest, or run twinbox topology apply)`],
          }
        : { text: depth.fault, problems: [`the mailbox of ${actor}: ${depth.fault}`] };
    return {
      text: `${depth.ready} ready · ${count(depth.consumers, 'consumer')}`,
      problems: [depth.consumers === 0 && `nobody consumes the mailbox of ${actor} (is ingest running?)`],
    };
  });
}

function unroutedPart(unrouted: Reading<QueueDepth>): Part {
  return part('unrouted', unrouted, (depth) => {
    if ('fault' in depth)
      return depth.fault === 'missing'
        ? { text: 'missing (twinbox topology apply makes it)' }
        : { text: depth.fault, problems: [`the unrouted messages: ${depth.fault}`] };
    return {
      text: `${depth.ready} ready`,
      problems: [depth.ready > 0 && `${count(depth.ready, 'message')} that no actor subscribes to`],
    };
  });
}

function dlqPart(actor: string, dlq: Reading<QueueDepth>): Part {
  return part(`dead letters ${actor}`, dlq, (depth) => {
    if ('fault' in depth)
      return depth.fault === 'missing'
        ? { text: 'missing' } // made with the mailbox, which is told already
        : { text: depth.fault, problems: [`the dead letters of ${actor}: ${depth.fault}`] };
    return {
      text: `${depth.ready} ready`,
      problems: [depth.ready > 0 && `${count(depth.ready, 'dead letter')} of ${actor}`],
    };
  });
}

function inboxPart(actor: string, inbox: Reading<InboxCounts>): Part {
  return part(
    `inbox ${actor}`,
    inbox,
    ({ unfinished, processed, dead, oldestUnfinishedSeconds: oldest }) => ({
      text: `${unfinished} unfinished${oldest === null ? '' : `, the oldest for ${span(oldest)}`} · ${processed} processed · ${dead} dead`,
      problems: [dead > 0 && `${count(dead, 'dead message')} of ${actor}`],
    }),
  );
}
