import { openCatalog } from '../actor/index.js';
import {
  brokerAccess,
  createConsumer,
  createPublisher,
  deadLetterQueue,
  openConnection,
  type Consumer,
} from '../broker/index.js';
import { DEDUPE_WINDOW_FIX, dedupeWindowFault, openInbox, proveWrite, waitForInbox } from '../inbox/index.js';
import type { WithoutId } from '../message/index.js';
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
  readonly withoutId?: WithoutId;
}

/** Records what arrives in every actor's mailbox. Any number of them may run. */
export const ingest: ProcessType<'RABBITMQ_URL' | 'MONGODB_URI' | 'REDIS_URL'> = {
  name: 'ingest',
  needs: ['RABBITMQ_URL', 'MONGODB_URI', 'REDIS_URL'],
  start: async ({ config, env, log, instance, probe, signal }) => {
    const broker = brokerAccess(env, 'ingest');
    const actors = await declarations(config.TWINBOX_PROCESSORS, log);
    const names = actors.map(({ name }) => name);
    const inbox = openInbox(config.MONGODB_URI, instance);
    const queues = openQueues({
      url: config.REDIS_URL,
      prefix: config.REDIS_PREFIX,
      actors: names,
      maxWaiting: config.QUEUE_MAX_WAITING,
      log,
    });
    const eachConsumer = async (act: (consumer: Consumer) => Promise<void>): Promise<void> => {
      await Promise.all(mailboxes.map(({ consumer }) => act(consumer)));
    };
    const gate: Gate = createGate({
      proveWrite: () => proveWrite(inbox, instance),
      onShut: () => eachConsumer((consumer) => consumer.pause()),
      onOpen: () => eachConsumer((consumer) => consumer.resume()),
      log,
      signal,
    });
    const mailboxes = actors.map(({ name, subscribes, attempts, withoutId = 'dead-letter' }) => {
      // Each its own: a returned letter may bear no id, and must not be taken for another actor's.
      const letters = createPublisher({
        name: `the publisher of ${deadLetterQueue(name)}`,
        confirmTimeoutMs: CONFIRM_MS,
      });
      const intake = createIntake({
        actor: name,
        attempts,
        inbox,
        queues,
        deadLetters: letters,
        gate,
        proveWrite: () => proveWrite(inbox, instance),
        batch: config.INGEST_BATCH,
        lookInMs: config.SWEEP_MIN_AGE_MS,
        maxBodyBytes: config.MAX_BODY_BYTES,
        withoutId,
        log,
        probe,
        signal,
      });
      const consumer = createConsumer({
        actor: name,
        subscribes,
        prefetch: config.INGEST_PREFETCH,
        onDelivery: intake.take,
      });
      return { intake, consumer, letters };
    });

    const tooShort = dedupeWindowFault({
      retentionSeconds: config.INBOX_RETENTION_SECONDS,
      replaySeconds: config.OUTBOX_RETENTION_DAYS * 86_400,
      backlogSeconds: 0,
    });
    if (tooShort !== undefined)
      log.warn({ event: 'ingest.retention.short' }, `${tooShort}: ${DEDUPE_WINDOW_FIX}`);

    // Before the first message is asked for: without its unique index the inbox would record twice.
    await waitForInbox(inbox, names, config.INBOX_RETENTION_SECONDS, log, signal);

    // Two connections: a broker that blocks publishers must not hold up the acks.
    const consuming = openConnection({
      url: broker,
      name: `${instance} consumes`,
      log,
      roles: mailboxes.map(({ consumer }) => consumer.role),
    });
    const publishing = openConnection({
      url: broker,
      name: `${instance} publishes`,
      log,
      roles: mailboxes.map(({ letters }) => letters.role),
    });
    return {
      ready: () =>
        gate.fault() ??
        consuming.fault() ??
        mailboxes.filter(({ consumer }) => !consumer.attached()).map(() => 'a mailbox has no consumer')[0],
      stop: async () => {
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
        const { subscribes, attempts, withoutId } = await load();
        return { name, subscribes, attempts, ...(withoutId === undefined ? {} : { withoutId }) };
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
