import { Queue, type QueueOptions } from 'bullmq';
import { Redis } from 'ioredis';
import { describe } from '../runtime/errors.js';
import { gather } from '../runtime/gather.js';
import { sparsely, type Log } from '../runtime/log.js';
import { jobId, toJob, type JobData, type Ticket } from './job.js';

export interface QueuesOptions {
  readonly url: string;
  readonly prefix: string;
  readonly actors: readonly string[];
  /** Jobs that may wait in Redis for each actor. */
  readonly maxWaiting: number;
  readonly log: Log;
}

/** What a job's id stands for in Redis now. */
export type JobSight =
  | 'absent'
  /** Its hash is there and no list holds it: it blocks its id, and nothing will run it. */
  | 'orphan'
  | 'waiting'
  | 'delayed'
  | 'active'
  | 'completed'
  | 'failed';

export interface QueueCounts {
  readonly waiting: number;
  readonly delayed: number;
  readonly active: number;
  readonly failed: number;
}

export interface Queues {
  /** @returns false when the actor's queue is full: the inbox keeps the message. @throws within a second when Redis is away */
  add(actor: string, ticket: Ticket): Promise<boolean>;
  sight(actor: string, messageId: string, generation: number): Promise<JobSight>;
  /** @throws when the job is locked by a worker */
  remove(actor: string, messageId: string, generation: number): Promise<void>;
  counts(actor: string): Promise<QueueCounts>;
  /** False when Redis was lost whole since `markPresence`. */
  presence(): Promise<boolean>;
  markPresence(): Promise<void>;
  /** Why Redis cannot be used; undefined when it can. */
  fault(): string | undefined;
  /** The BullMQ queues themselves, for the board alone. */
  boardQueues(): Queue[];
  close(): Promise<void>;
}

const COMMAND_MS = 1_000;
/** A command without an answer for so long: the connection is half-open, and is made anew. */
const SILENCE_MS = 5_000;
/** How long a count of what waits is believed. */
const ROOM_MS = 1_000;
const LOG_EVERY_MS = 5_000;
const ADD_BATCH = 100;
const ADDS_AT_ONCE = 2;

/**
 * The producers' side. Fails fast and never queues a command in memory: a Redis that is down or frozen must
 * not hold up whoever records. (A Queue without these four options waits for ever when Redis is down at boot.)
 */
export function openQueues({ url, prefix, actors, maxWaiting, log }: QueuesOptions): Queues {
  const redis = new Redis(url, {
    enableOfflineQueue: false,
    commandTimeout: COMMAND_MS,
    socketTimeout: SILENCE_MS,
    connectTimeout: 5_000,
    maxRetriesPerRequest: 1,
    retryStrategy: (times) => Math.min(times * 200, 2_000),
  });
  let lastError: string | undefined;
  const rarely = sparsely(LOG_EVERY_MS);
  const onError = (error: Error): void => {
    lastError = describe(error);
    rarely(lastError, () => log.warn({ event: 'redis.error', err: error }, `Redis: ${lastError ?? ''}`));
  };
  redis.on('error', onError);
  const options: QueueOptions = {
    connection: redis,
    prefix,
    skipVersionCheck: true,
    skipWaitingForReady: true,
    skipMetasUpdate: true,
  };
  const queues = new Map(
    actors.map((actor) => {
      const queue = new Queue<JobData>(actor, options);
      queue.on('error', onError);
      return [actor, queue] as const;
    }),
  );
  const room = new Map<string, { counted: Promise<{ left: number }>; until: number }>();
  const presenceKey = `${prefix}:presence`;

  const queueOf = (actor: string): Queue<JobData> => {
    const queue = queues.get(actor);
    if (queue === undefined) throw new Error(`no queue was opened for actor ${actor}`);
    return queue;
  };
  const counts = async (actor: string): Promise<QueueCounts> => {
    const found = await queueOf(actor).getJobCounts('waiting', 'prioritized', 'delayed', 'active', 'failed');
    return {
      waiting: (found.waiting ?? 0) + (found.prioritized ?? 0),
      delayed: found.delayed ?? 0,
      active: found.active ?? 0,
      failed: found.failed ?? 0,
    };
  };
  /**
   * Counted now and then, and down from there: a count for every add would cost as much as the add. One count
   * serves all that ask for it at the same time: each with a count of its own would find the same room.
   */
  const takeRoom = async (actor: string, jobs: number): Promise<number> => {
    let known = room.get(actor);
    if (known === undefined || known.until < performance.now()) {
      const counted = counts(actor).then(({ waiting, delayed }) => ({
        left: maxWaiting - waiting - delayed,
      }));
      known = { counted, until: performance.now() + ROOM_MS };
      room.set(actor, known);
      counted.catch(() => room.delete(actor)); // the next one asks again
    }
    const space = await known.counted;
    const taken = Math.max(0, Math.min(jobs, space.left));
    space.left -= taken;
    return taken;
  };

  /** What comes together goes in one transaction: a tenth of the time of as many adds. */
  const adders = new Map(
    actors.map((actor) => [
      actor,
      gather<Ticket, boolean>(
        async (tickets) => {
          const room = await takeRoom(actor, tickets.length);
          const jobs = tickets.slice(0, room).map((ticket) => toJob(actor, ticket));
          if (jobs.length > 0) await queueOf(actor).addBulk(jobs);
          return tickets.map((_, index) => index < room);
        },
        { maxItems: ADD_BATCH, parallel: ADDS_AT_ONCE },
      ),
    ]),
  );

  return {
    add: async (actor, ticket) => {
      const adder = adders.get(actor);
      if (adder === undefined) throw new Error(`no queue was opened for actor ${actor}`);
      return adder.submit(ticket);
    },
    sight: async (actor, messageId, generation) => {
      const id = jobId(messageId, generation);
      const state = await queueOf(actor).getJobState(id);
      if (state === 'unknown') return (await queueOf(actor).getJob(id)) === undefined ? 'absent' : 'orphan';
      return state === 'prioritized' || state === 'waiting-children' ? 'waiting' : state;
    },
    remove: async (actor, messageId, generation) => {
      const job = await queueOf(actor).getJob(jobId(messageId, generation));
      await job?.remove();
    },
    counts,
    presence: async () => (await redis.exists(presenceKey)) === 1,
    markPresence: async () => {
      await redis.set(presenceKey, '1');
    },
    fault: () =>
      redis.status === 'ready' ? undefined : `Redis cannot be reached (${lastError ?? redis.status})`,
    boardQueues: () => [...queues.values()],
    close: async () => {
      await Promise.allSettled([...queues.values()].map((queue) => queue.close()));
      redis.disconnect();
    },
  };
}
