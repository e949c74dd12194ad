import { openCatalog } from '../actor/index.js';
import { freeLock, holdLock, openInbox, waitForInbox } from '../inbox/index.js';
import { openQueues } from '../queue/index.js';
import { describe } from '../runtime/errors.js';
import { isOver, pause } from '../runtime/loop.js';
import type { ProcessType } from '../runtime/process.js';
import { sweep, type SweepDeps } from './sweep.js';

const LOCK = 'sweeper';
const MAX_LOOK_MS = 600_000;

/** Puts back into the queue what would wait there for ever. Any number may run; a lock lets one sweep at a time. */
export const sweeper: ProcessType<'MONGODB_URI' | 'REDIS_URL'> = {
  name: 'sweeper',
  needs: ['MONGODB_URI', 'REDIS_URL'],
  start: async ({ config, log, instance, probe, signal }) => {
    const catalog = await openCatalog(config.TWINBOX_PROCESSORS);
    const actors = await Promise.all(
      catalog.map(async ({ name, load }) => ({
        name,
        attempts: await load().then(
          (processor) => processor.attempts,
          () => undefined, // its own process type says why it cannot be loaded
        ),
      })),
    );
    const names = actors.map(({ name }) => name);
    const inbox = openInbox(config.MONGODB_URI, instance);
    const queues = openQueues({
      url: config.REDIS_URL,
      prefix: config.REDIS_PREFIX,
      actors: names,
      maxWaiting: config.QUEUE_MAX_WAITING,
      log,
    });
    await waitForInbox(inbox, names, config.INBOX_RETENTION_SECONDS, log, signal);

    const policy = { minAgeMs: config.SWEEP_MIN_AGE_MS, maxLookMs: MAX_LOOK_MS, leaseMs: config.LEASE_MS };
    const deps: SweepDeps = { inbox, queues, actors, policy, log, probe };
    const lockMs = config.SWEEP_INTERVAL_MS * 3 + 10_000;
    let fault: string | undefined;
    const run = async (): Promise<void> => {
      while (!isOver(signal)) {
        try {
          if (await holdLock(inbox, LOCK, instance, lockMs)) {
            const result = await sweep(deps, signal);
            if (Object.keys(result).some((end) => end !== 'leave'))
              log.info({ event: 'sweep.done', ...result }, 'swept');
          }
          fault = undefined;
        } catch (error) {
          fault = `cannot sweep: ${describe(error)}`;
          log.warn({ event: 'sweep.stores', err: error }, fault);
        }
        await pause(config.SWEEP_INTERVAL_MS, signal);
      }
    };
    const running = run();
    return {
      ready: () => fault,
      stop: async () => {
        await running;
        await freeLock(inbox, LOCK, instance).catch(() => undefined); // it runs out by itself
        await inbox.close();
        await queues.close();
      },
    };
  },
};
