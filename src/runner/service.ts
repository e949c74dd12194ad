import { entryOf, openCatalog, type CatalogEntry, type Closable, type Processor } from '../actor/index.js';
import { claim, finish, openInbox, waitForInbox, type Claim, type ClaimRequest } from '../inbox/index.js';
import { openWorker } from '../queue/index.js';
import { readOwnSettings } from '../runtime/config.js';
import { gather } from '../runtime/gather.js';
import { pause } from '../runtime/loop.js';
import type { ProcessType } from '../runtime/process.js';
import { keepLeases } from './leases.js';
import { createRunner } from './run.js';

const CLAIM_BATCH = 100;
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
    start: async ({ config, env, log, instance, probe, fail }) => {
      const resources = await openResources(processor, env);
      const inbox = openInbox(config.MONGODB_URI, instance);
      const stopping = new AbortController();
      const heartbeatEnd = new AbortController();
      await waitForInbox(inbox, [actor], config.INBOX_RETENTION_SECONDS, log, stopping.signal);

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
        finishes: gather<string, boolean>((ids) => finish(inbox, actor, ids, instance), {
          maxItems: CLAIM_BATCH,
        }),
        maxBodyBytes: config.MAX_BODY_BYTES,
        log,
        probe,
        random: Math.random,
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
          stopping.abort();
          const stopped = worker.stop();
          await Promise.race([stopped, pause(Math.min(PATIENCE_MS, config.SHUTDOWN_TIMEOUT_MS / 10))]);
          leases.endAll('shutdown');
          await stopped;
          heartbeatEnd.abort();
          await (resources as Closable | undefined)?.close?.();
          await inbox.close();
          worker.close();
        },
      };
    },
  };
}

async function openResources(processor: Processor, env: NodeJS.ProcessEnv): Promise<unknown> {
  const settings =
    processor.settings === undefined ? {} : readOwnSettings(env, processor.settings, processor.name);
  return processor.open?.(settings);
}
