import { entryOf, openCatalog, type CatalogEntry, type Closable } from '../actor/index.js';
import { claim, finish, openInbox, waitForInbox, type Claim, type ClaimRequest } from '../inbox/index.js';
import { openWorker } from '../queue/index.js';
import { readOwnSettings } from '../runtime/config.js';
import { gather } from '../runtime/gather.js';
import { pause, unlessStopped } from '../runtime/loop.js';
import type { ProcessType } from '../runtime/process.js';
import { keepLeases, type Leases } from './leases.js';
import { createRunner } from './run.js';

const CLAIM_BATCH = 100;
const REDIS_MS = 2_000;
/** Effects that are nearly done at a stop get this long to end by themselves, a tenth of the whole at most. */
const PATIENCE_MS = 2_000;

/**
 * The process type of one actor: runs its jobs.
 * @throws what the actor's file throws when it cannot be loaded; {ConfigurationError} for an unknown name
 */
export async function runnerOf(
  actor: string,
  modulePath: string | undefined,
): Promise<ProcessType<'MONGODB_URI' | 'REDIS_URL'>> {
  const entry: CatalogEntry = entryOf(await openCatalog(modulePath), actor);
  const processor = await entry.load();
  const ownSettings =
    processor.settings === undefined
      ? []
      : Object.keys((processor.settings as { shape?: object }).shape ?? {});
  return {
    name: actor,
    needs: ['MONGODB_URI', 'REDIS_URL'],
    knownSettings: ownSettings,
    start: async ({ config, env, log, instance, probe, signal, fail }) => {
      // Its faults are told before anything is waited for.
      const settings =
        processor.settings === undefined ? {} : readOwnSettings(env, processor.settings, actor);
      const inbox = openInbox(config.MONGODB_URI, instance);
      const heartbeatEnd = new AbortController();
      await waitForInbox(inbox, [actor], config.INBOX_RETENTION_SECONDS, log, signal);

      const resources = await unlessStopped(
        signal,
        `${actor} had opened what it needs`,
        Promise.resolve(processor.open?.(settings)),
      );
      const leases = keepLeases(
        { inbox, actor, owner: instance, leaseMs: config.LEASE_MS, log },
        heartbeatEnd.signal,
      );
      const run = createRunner({
        processor,
        resources,
        inbox,
        owner: instance,
        leaseMs: config.LEASE_MS,
        leases,
        claims: gather<ClaimRequest, Claim>(
          (requests) => claim(inbox, actor, requests, instance, config.LEASE_MS),
          { maxItems: CLAIM_BATCH },
        ),
        finishes: gather<string, boolean>((ids) => finish(inbox, actor, ids, instance, processor.keepBody), {
          maxItems: CLAIM_BATCH,
        }),
        maxBodyBytes: config.MAX_BODY_BYTES,
        log,
        probe,
        random: Math.random,
        fail,
      });
      const worker = openWorker({
        url: config.REDIS_URL,
        prefix: config.REDIS_PREFIX,
        actor,
        name: instance,
        concurrency: processor.concurrency,
        lockMs: config.LEASE_MS,
        log,
        run,
        onUnfit: fail,
      });
      worker.start();
      return {
        ready: () => worker.fault(),
        stop: async () => {
          const stopped = worker.stop();
          await Promise.race([stopped, pause(Math.min(PATIENCE_MS, config.SHUTDOWN_TIMEOUT_MS / 10))]);
          leases.endAll('shutdown');
          await Promise.race([stopped, ended(leases)]);
          heartbeatEnd.abort();
          await (resources as Closable | undefined)?.close?.();
          await inbox.close();
          const left = worker.busy();
          worker.close();
          if (left > 0) {
            throw new Error(
              `redis does not answer: ${left} jobs could not be handed back; their messages are free, and the jobs come again when they stall`,
            );
          }
        },
      };
    },
  };
}

/** Every run has ended, and Redis had a moment to hear of it: its own close waits for a Redis that is away. */
async function ended(leases: Leases): Promise<void> {
  while (leases.running > 0) await pause(50);
  await pause(REDIS_MS);
}
