import { createPublisher, openConnection } from '../broker/index.js';
import { checkMigrated, isWritable, openSession, tryOwn } from '../outbox/index.js';
import { ConfigurationError, describe } from '../runtime/errors.js';
import { isOver, pause } from '../runtime/loop.js';
import type { ProcessContext, ProcessType } from '../runtime/process.js';
import { backoffMs } from '../runtime/retry.js';
import { relayRows } from './relay.js';

type Needs = 'DATABASE_URL' | 'RABBITMQ_URL';

/** How often one that is not the owner asks again. */
const STANDBY_MS = 1_000;
const BACKOFF = { firstMs: 200, capMs: 5_000 };

/**
 * Publishes the outbox. Any number of relays may run: one session owns the outbox, the others stand by and
 * take over when its connection ends, however it ended.
 */
export const relay: ProcessType<Needs> = {
  name: 'relay',
  needs: ['DATABASE_URL', 'RABBITMQ_URL'],
  start: async (context) => {
    const { config, log } = context;
    const stopping = new AbortController();
    const publisher = createPublisher({
      name: 'the publisher',
      confirmTimeoutMs: config.RELAY_CONFIRM_TIMEOUT_MS,
    });
    const connection = openConnection({
      url: config.RABBITMQ_URL,
      name: context.instance,
      log,
      roles: [publisher.role],
    });
    const held = (): string | undefined =>
      connection.blocked() ?? (publisher.ready() ? undefined : (connection.fault() ?? 'no channel'));
    const state: State = { postgres: 'not connected to Postgres yet' };
    const running = own(context, state, { publisher, held }, stopping.signal);
    running.catch((error: unknown) => context.fail(error as Error));
    return {
      ready: () => state.postgres ?? connection.fault(),
      stop: async () => {
        stopping.abort();
        const ended = running.catch(() => undefined);
        // Confirms that never come must not outlast the stop: closing turns them into `unknown`.
        await Promise.race([ended, pause(config.SHUTDOWN_TIMEOUT_MS / 2)]);
        await connection.close();
        await ended;
      },
    };
  },
};

interface State {
  /** Why Postgres keeps this process from relaying; standing by is ready. */
  postgres: string | undefined;
}

/** Connects, becomes owner, relays; and again from the start whenever the session ends or Postgres refuses. */
async function own(
  { config, log, probe, instance }: ProcessContext<Needs>,
  state: State,
  broker: Pick<Parameters<typeof relayRows>[0], 'publisher' | 'held'>,
  signal: AbortSignal,
): Promise<void> {
  const policy = {
    maxAttempts: config.RELAY_MAX_ATTEMPTS,
    backoff: { firstMs: config.RELAY_BACKOFF_FIRST_MS, capMs: config.RELAY_BACKOFF_CAP_MS },
    maxBodyBytes: config.MAX_BODY_BYTES,
  };
  for (let failures = 0; !signal.aborted;) {
    try {
      const session = await openSession(config.DATABASE_URL, instance.slice(0, 63));
      try {
        await checkMigrated(session.client);
        if (!(await isWritable(session.client)))
          throw new Error('the server is read-only (a standby, or after a failover)');
        state.postgres = undefined;
        failures = 0;
        while (!isOver(signal) && !isOver(session.gone) && !(await tryOwn(session.client))) {
          await pause(STANDBY_MS, AbortSignal.any([signal, session.gone]));
        }
        if (!isOver(signal) && !isOver(session.gone)) log.info({ event: 'relay.owner' }, 'owns the outbox');
        await relayRows(
          {
            session,
            ...broker,
            policy,
            window: config.RELAY_WINDOW,
            pollMs: config.RELAY_POLL_MS,
            log,
            probe,
            random: Math.random,
          },
          signal,
        );
        if (isOver(session.gone)) throw new Error('the connection to Postgres is gone');
      } finally {
        await session.close();
      }
    } catch (error) {
      if (error instanceof ConfigurationError) throw error;
      state.postgres = `Postgres: ${describe(error)}`;
      if (!isOver(signal)) log.warn({ event: 'relay.postgres', err: error }, state.postgres);
      failures += 1;
      await pause(backoffMs(failures, BACKOFF, Math.random()), signal);
    }
  }
}
