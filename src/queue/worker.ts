import { DelayedError, UnrecoverableError, WaitingError, Worker, type Job } from 'bullmq';
import { Redis } from 'ioredis';
import { ConfigurationError, describe } from '../runtime/errors.js';
import { sparsely, type Log } from '../runtime/log.js';
import { generationOf, type JobData } from './job.js';

/** How a job ends, or does not end yet. */
export type Disposition =
  | { readonly kind: 'done' }
  /** A try failed; the next comes after exactly this wait. */
  | { readonly kind: 'retry'; readonly inMs: number; readonly error: Error }
  /** No more tries. */
  | { readonly kind: 'dead'; readonly error: Error }
  /** Not now; no try is used. */
  | { readonly kind: 'later'; readonly inMs: number }
  /** Given back at once, to the head of the queue; no try is used. */
  | { readonly kind: 'hand back' };

export interface WorkItem {
  readonly jobId: string;
  readonly generation: number;
  /** Undefined when Redis lost the job's data. */
  readonly messageId: string | undefined;
}

export interface WorkerOptions {
  readonly url: string;
  readonly prefix: string;
  readonly actor: string;
  readonly name: string;
  readonly concurrency: number;
  /** How long BullMQ believes a job alive without its worker. */
  readonly lockMs: number;
  readonly log: Log;
  /** Must not reject. A lost lock does not stop it: the lease in the inbox is what counts. */
  readonly run: (item: WorkItem) => Promise<Disposition>;
  /** Told once when this Redis must not be used. */
  readonly onUnfit: (error: Error) => void;
}

export interface JobWorker {
  start(): void;
  /** Why no job is fetched; undefined when they are. */
  fault(): string | undefined;
  /** Jobs that were fetched and whose end Redis does not know yet. */
  busy(): number;
  /** Fetches no more, and resolves when what runs is settled. Pending while Redis is away. */
  stop(): Promise<void>;
  /** Lets go of Redis, after `stop`. */
  close(): void;
}

const LOG_EVERY_MS = 5_000;
/** A command without an answer for so long: the connection is half-open. Above BullMQ's longest blocking fetch (10 s). */
const SILENCE_MS = 20_000;

/** Carries the wait that was drawn to the back-off strategy. */
class RetryIn extends Error {
  override readonly name = 'RetryIn';
  readonly inMs: number;
  constructor(error: Error, inMs: number) {
    super(describe(error));
    this.inMs = inMs;
  }
}

/** Takes jobs and turns what became of each into BullMQ's terms. */
export function openWorker(options: WorkerOptions): JobWorker {
  const { url, prefix, actor, log } = options;
  const rarely = sparsely(LOG_EVERY_MS);
  let lastError: string | undefined;
  let busy = 0;
  const onError = (error: Error): void => {
    lastError = describe(error);
    rarely(lastError, () => log.warn({ event: 'redis.error', err: error }, `Redis: ${lastError ?? ''}`));
  };
  const redis = new Redis(url, {
    maxRetriesPerRequest: null, // a worker waits for Redis as long as it takes
    retryStrategy: (times) => Math.min(times * 200, 2_000),
    connectTimeout: 5_000,
    socketTimeout: SILENCE_MS,
  });
  redis.on('error', onError);
  redis.on('ready', () => {
    evictionFault(redis).then(
      (fault) => {
        if (fault !== undefined) options.onUnfit(new ConfigurationError(fault));
      },
      () => undefined, // asked again at the next connection
    );
  });

  const process = async (job: Job<JobData>, token: string | undefined): Promise<void> => {
    const id = job.id ?? '';
    const data = job.data as Partial<JobData> | undefined;
    const item = { jobId: id, generation: generationOf(id), messageId: data?.messageId };
    busy += 1;
    try {
      await settle(job, token, await options.run(item));
    } finally {
      busy -= 1;
    }
  };
  const worker = new Worker<JobData>(actor, process, {
    connection: redis,
    prefix,
    name: options.name,
    concurrency: options.concurrency,
    autorun: false,
    lockDuration: options.lockMs,
    stalledInterval: Math.max(1_000, Math.floor(options.lockMs / 2)),
    // A stall is never the message's fault; the document's own count of unended starts is what convicts.
    maxStalledCount: 1_000_000,
    settings: {
      backoffStrategy: (_attempts, _type, error) => (error instanceof RetryIn ? error.inMs : 1_000),
    },
  });
  worker.on('error', onError);

  return {
    start: () => {
      worker.run().catch((error: unknown) => options.onUnfit(error as Error));
    },
    fault: () => {
      if (redis.status !== 'ready') return `Redis cannot be reached (${lastError ?? redis.status})`;
      return worker.isRunning() ? undefined : 'the worker does not fetch jobs';
    },
    busy: () => busy,
    stop: () => worker.close(),
    close: () => redis.disconnect(),
  };
}

/** Turns a disposition into what BullMQ understands: a return, a throw, or a move and the throw that goes with it. */
async function settle(job: Job<JobData>, token: string | undefined, disposition: Disposition): Promise<void> {
  switch (disposition.kind) {
    case 'done':
      return;
    case 'dead':
      throw new UnrecoverableError(describe(disposition.error));
    case 'retry':
      // The document grants another try although the job has none left (a job that was made anew): it waits.
      if (job.attemptsMade + 1 >= (job.opts.attempts ?? 1)) return moveLater(job, token, disposition.inMs);
      throw new RetryIn(disposition.error, disposition.inMs);
    case 'later':
      return moveLater(job, token, disposition.inMs);
    case 'hand back':
      await job.moveToWait(token);
      throw new WaitingError();
  }
}

async function moveLater(job: Job<JobData>, token: string | undefined, inMs: number): Promise<never> {
  await job.moveToDelayed(Date.now() + Math.max(1, Math.ceil(inMs)), token);
  throw new DelayedError();
}

/** A Redis that evicts keys throws jobs away in silence. */
async function evictionFault(redis: Redis): Promise<string | undefined> {
  const policy = /maxmemory_policy:(\S+)/.exec(await redis.info('memory'))?.[1];
  if (policy === undefined || policy === 'noeviction') return undefined;
  return `Redis has maxmemory-policy ${policy} and would throw jobs away: CONFIG SET maxmemory-policy noeviction (and put it into redis.conf)`;
}
