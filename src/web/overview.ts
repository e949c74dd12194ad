import { countMessages, type Inbox, type InboxCounts } from '../inbox/index.js';
import type { Backlog } from '../outbox/index.js';
import type { QueueCounts, Queues } from '../queue/index.js';
import { ConfigurationError, describe } from '../runtime/errors.js';
import { bounded } from '../runtime/loop.js';
import type { OutboxView } from './outbox-view.js';

/** What a store said, or why it said nothing. */
export type Reading<T> = { readonly value: T } | { readonly fault: string };

export interface ActorView {
  readonly name: string;
  readonly inbox: Reading<InboxCounts>;
  readonly jobs: Reading<QueueCounts & { readonly paused: boolean }>;
}

export interface Overview {
  readonly at: Date;
  readonly outbox: Reading<Backlog>;
  readonly actors: readonly ActorView[];
}

export interface OverviewOptions {
  readonly actors: readonly string[];
  readonly outbox: OutboxView;
  readonly inbox: Inbox;
  readonly queues: Queues;
  /** Time that each store has, in milliseconds. */
  readonly timeoutMs?: number;
}

/** Pages that ask within this time are shown the same numbers: many open tabs cost the stores no more than one. */
const FRESH_MS = 1_000;

/** The state of every hop. Never throws; a store that does not answer in its time is a fault in its place. */
export function createOverview(options: OverviewOptions): { read(): Promise<Overview> } {
  let latest: { reading: Promise<Overview>; until: number } | undefined;
  return {
    read: () => {
      if (latest === undefined || latest.until <= performance.now()) {
        const reading = readOverview(options);
        const mine = { reading, until: Infinity };
        latest = mine;
        const done = (): void => {
          mine.until = performance.now() + FRESH_MS;
        };
        reading.then(done, done);
      }
      return latest.reading;
    },
  };
}

async function readOverview(options: OverviewOptions): Promise<Overview> {
  const { actors, outbox, inbox, queues, timeoutMs = 2_000 } = options;
  const ask = async <T>(store: string, answer: Promise<T>): Promise<Reading<T>> => {
    try {
      return { value: await bounded('the answer', timeoutMs, answer) };
    } catch (error) {
      // Reachable, but not as it must be: that message says what to do.
      if (error instanceof ConfigurationError) return { fault: `${store}: ${error.message}` };
      if (error instanceof StoreFault) return { fault: error.message };
      return { fault: `${store} cannot be reached (${describe(error, 200)})` };
    }
  };
  const [rows, views] = await Promise.all([
    ask('Postgres', outbox.count(timeoutMs)),
    Promise.all(
      actors.map(async (name): Promise<ActorView> => {
        const [messages, jobs] = await Promise.all([
          ask('MongoDB', countMessages(inbox, name)),
          ask('Redis', countJobs(queues, name)),
        ]);
        return { name, inbox: messages, jobs };
      }),
    ),
  ]);
  return { at: new Date(), outbox: rows, actors: views };
}

async function countJobs(queues: Queues, actor: string): Promise<QueueCounts & { paused: boolean }> {
  const fault = queues.fault();
  // Says why; the command would only tell that its connection is not there.
  if (fault !== undefined) throw new StoreFault(fault);
  const queue = queues.boardQueues().find(({ name }) => name === actor);
  const [counts, paused] = await Promise.all([queues.counts(actor), queue?.isPaused() ?? false]);
  return { ...counts, paused };
}

/** A fault that is told in whole sentences already. */
class StoreFault extends Error {
  override readonly name = 'StoreFault';
}
