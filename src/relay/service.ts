import { brokerAccess, createPublisher, openConnection, type BrokerConnection } from '../broker/index.js';
import { checkDirectSession, checkMigrated, isWritable, openSession } from '../outbox/index.js';
import { ConfigurationError, describe } from '../runtime/errors.js';
import { isOver, pause } from '../runtime/loop.js';
import type { ProcessContext, ProcessType } from '../runtime/process.js';
import { backoffMs } from '../runtime/retry.js';
import { keepPurging } from './purge.js';
import { createRelay, type Relay } from './relay.js';

type Needs = 'DATABASE_URL' | 'RABBITMQ_URL';

const BACKOFF = { firstMs: 200, capMs: 5_000 };

/**
 * Publishes the outbox. Any number of relays may run: each owns its share of the ordering slots for as long as its
 * session lives, and the others take over when it ends, however it ended.
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
      blocked: () => connection.blocked() !== undefined,
    });
    const connection: BrokerConnection = openConnection({
      url: brokerAccess(context.env, 'relay'),
      name: context.instance,
      log,
      roles: [publisher.role],
      onMismatch: context.fail,
    });
    const relaying = createRelay({
      publisher,
      held: () =>
        connection.blocked() ?? (publisher.ready() ? undefined : (connection.fault() ?? 'no channel')),
      policy: {
        maxAttempts: config.RELAY_MAX_ATTEMPTS,
        backoff: { firstMs: config.RELAY_BACKOFF_FIRST_MS, capMs: config.RELAY_BACKOFF_CAP_MS },
        maxBodyBytes: config.MAX_BODY_BYTES,
        parkedBlocks: config.RELAY_ON_PARKED === 'block',
      },
      window: config.RELAY_WINDOW,
      pollMs: config.RELAY_POLL_MS,
      log,
      probe: context.probe,
      random: Math.random,
    });
    const state: State = { postgres: 'not connected to Postgres yet' };
    const running = keepSession(context, state, relaying, stopping.signal);
    running.catch((error: unknown) => context.fail(error as Error));
    const purging = keepPurging(
      {
        databaseUrl: config.DATABASE_URL,
        retentionDays: config.OUTBOX_RETENTION_DAYS,
        inCharge: () => relaying.owns(0),
        log,
      },
      stopping.signal,
    );
    return {
      ready: () => state.postgres ?? connection.fault() ?? connection.blocked(),
      stop: async () => {
        stopping.abort();
        const ended = running.catch(() => undefined);
        // Confirms that never come must not outlast the stop: closing turns them into `unknown`.
        await Promise.race([ended, pause(config.SHUTDOWN_TIMEOUT_MS / 2)]);
        await connection.close();
        await Promise.all([ended, purging]);
      },
    };
  },
};

interface State {
  /** Why Postgres keeps this process from relaying. */
  postgres: string | undefined;
}

/** Connects and relays; and again from the start whenever the session ends or Postgres refuses. */
async function keepSession(
  { config, log, instance }: ProcessContext<Needs>,
  state: State,
  relaying: Relay,
  signal: AbortSignal,
): Promise<void> {
  let direct = false;
  for (let failures = 0; !signal.aborted;) {
    try {
      if (!direct) await checkDirectSession(config.DATABASE_URL);
      direct = true;
      const session = await openSession(config.DATABASE_URL, instance.slice(0, 63));
      try {
        await checkMigrated(session.client);
        if (!(await isWritable(session.client)))
          throw new Error('the server is read-only (a standby, or after a failover)');
        state.postgres = undefined;
        failures = 0;
        await relaying.run(session, signal);
        if (isOver(session.gone) && !isOver(signal)) throw new Error('the connection to Postgres is gone');
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
