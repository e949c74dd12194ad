import { openCatalog } from '../actor/index.js';
import { createConsumer, createPublisher, openConnection, type Consumer } from '../broker/index.js';
import { openInbox, waitForInbox } from '../inbox/index.js';
import { openQueues } from '../queue/index.js';
import { describe } from '../runtime/errors.js';
import type { Log } from '../runtime/log.js';
import type { ProcessType } from '../runtime/process.js';
import { createGate, type Gate } from './gate.js';
import { createIntake } from './intake.js';

const CONFIRM_MS = 10_000;

/** What ingest needs to know of an actor; its effect is not its business. */
interface Declaration {
  readonly name: string;
  readonly subscribes?: readonly string[];
  readonly attempts?: number;
}

/** Records what arrives in every actor's mailbox. Any number of them may run. */
export const ingest: ProcessType<'RABBITMQ_URL' | 'MONGODB_URI' | 'REDIS_URL'> = {
  name: 'ingest',
  needs: ['RABBITMQ_URL', 'MONGODB_URI', 'REDIS_URL'],
  start: async ({ config, log, instance, probe, fail }) => {
    const actors = await declarations(config.TWINBOX_PROCESSORS, log);
    const names = actors.map(({ name }) => name);
    const stopping = new AbortController();
    const inbox = openInbox(config.MONGODB_URI, instance);
    const queues = openQueues({
      url: config.REDIS_URL,
      prefix: config.REDIS_PREFIX,
      actors: names,
      maxWaiting: config.QUEUE_MAX_WAITING,
      log,
    });
    const deadLetters = createPublisher({ name: 'the dead-letter publisher', confirmTimeoutMs: CONFIRM_MS });

    const eachConsumer = async (act: (consumer: Consumer) => Promise<void>): Promise<void> => {
      await Promise.all(mailboxes.map(({ consumer }) => act(consumer)));
    };
    const gate: Gate = createGate({
      ping: inbox.ping,
      onShut: () => eachConsumer((consumer) => consumer.pause()),
      onOpen: () => eachConsumer((consumer) => consumer.resume()),
      log,
      signal: stopping.signal,
    });
    const mailboxes = actors.map(({ name, subscribes, attempts }) => {
      const intake = createIntake({
        actor: name,
        attempts,
        inbox,
        queues,
        deadLetters,
        gate,
        batch: config.INGEST_BATCH,
        lookInMs: config.SWEEP_MIN_AGE_MS,
        maxBodyBytes: config.MAX_BODY_BYTES,
        log,
        probe,
      });
      const consumer = createConsumer({
        actor: name,
        subscribes,
        prefetch: config.INGEST_PREFETCH,
        onDelivery: intake.take,
      });
      return { intake, consumer };
    });

    // Before the first message is asked for: without its unique index the inbox would record twice.
    const inboxReady = waitForInbox(inbox, names, config.INBOX_RETENTION_SECONDS, log, stopping.signal);
    inboxReady.catch(fail);
    await inboxReady;

    // Two connections: a broker that blocks publishers must not hold up the acks.
    const consuming = openConnection({
      url: config.RABBITMQ_URL,
      name: `${instance} consumes`,
      log,
      roles: mailboxes.map(({ consumer }) => consumer.role),
    });
    const publishing = openConnection({
      url: config.RABBITMQ_URL,
      name: `${instance} publishes`,
      log,
      roles: [deadLetters.role],
    });
    return {
      ready: () =>
        gate.fault() ??
        consuming.fault() ??
        mailboxes.filter(({ consumer }) => !consumer.attached()).map(() => 'a mailbox has no consumer')[0],
      stop: async () => {
        stopping.abort();
        await eachConsumer((consumer) => consumer.pause());
        await Promise.all(mailboxes.map(({ intake }) => intake.idle()));
        await Promise.all([consuming.close(), publishing.close()]);
        await inbox.close();
        await queues.close();
      },
    };
  },
};

/** An actor whose file cannot be loaded keeps its mailbox, and what arrives there is recorded. */
async function declarations(modulePath: string | undefined, log: Log): Promise<Declaration[]> {
  const catalog = await openCatalog(modulePath);
  return Promise.all(
    catalog.map(async ({ name, load }): Promise<Declaration> => {
      try {
        const { subscribes, attempts } = await load();
        return { name, subscribes, attempts };
      } catch (error) {
        log.error(
          { event: 'ingest.actor.unloadable', actor: name, err: error },
          `actor ${name} cannot be loaded (${describe(error)}): its messages are recorded and wait`,
        );
        return { name };
      }
    }),
  );
}
