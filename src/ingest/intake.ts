import { deadLetterOf, withoutForeignHeaders, type Delivery, type Publisher } from '../broker/index.js';
import { record, type Inbox, type Recorded } from '../inbox/index.js';
import { readDelivery, type Envelope, type Refusal } from '../message/index.js';
import type { Queues } from '../queue/index.js';
import { describe } from '../runtime/errors.js';
import { gather } from '../runtime/gather.js';
import { sparsely, type Log } from '../runtime/log.js';
import { pause } from '../runtime/loop.js';
import type { Probe } from '../runtime/probe.js';
import { decide } from './decide.js';
import type { Gate } from './gate.js';

export interface IntakeDeps {
  readonly actor: string;
  /** Tries of a message; undefined when the actor's file cannot be loaded: recorded all the same, enqueued later. */
  readonly attempts: number | undefined;
  readonly inbox: Inbox;
  readonly queues: Queues;
  readonly deadLetters: Publisher;
  readonly gate: Gate;
  readonly batch: number;
  readonly lookInMs: number;
  readonly maxBodyBytes: number;
  readonly log: Log;
  readonly probe: Probe;
}

export interface Intake {
  /** Takes one delivery and sees it settled. */
  take(delivery: Delivery): void;
  /** Resolves when everything that was taken is settled and its enqueueing is over. */
  idle(): Promise<void>;
}

const LETTER_RETRY_MS = 1_000;
const LOG_EVERY_MS = 5_000;

/** The way of one actor's deliveries: read, record, ack, enqueue; in this order, whatever fails. */
export function createIntake(deps: IntakeDeps): Intake {
  const { actor, inbox, queues, gate, log, probe } = deps;
  const rarely = sparsely(LOG_EVERY_MS);
  const open = new Set<Promise<void>>();

  const recorder = gather<Envelope, Recorded>(
    async (envelopes) => {
      // Shut since these were taken: each batch would wait out the driver's time limits, one after the other,
      // and a stop would wait for them all.
      const fault = gate.fault();
      if (fault !== undefined) return envelopes.map(() => ({ kind: 'unknown', error: new Error(fault) }));
      const recorded = await record(inbox, actor, envelopes, deps.lookInMs);
      const stored = envelopes.filter((_, index) => recorded[index]?.kind === 'stored');
      if (stored.length > 0)
        probe(
          'ingest.stored',
          stored.map(({ messageId }) => messageId),
        );
      return recorded;
    },
    { maxItems: deps.batch },
  );
  // One at a time: a letter keeps an id that may be none, so a return could not be told from another's.
  const letters = gather<{ delivery: Delivery; refusal: Refusal }, undefined>(
    async ([letter]) => {
      if (letter !== undefined) await bury(letter.delivery, letter.refusal);
      return [undefined];
    },
    { maxItems: 1 },
  );

  const settle = async (delivery: Delivery): Promise<void> => {
    const reading = readDelivery(delivery, deps.maxBodyBytes);
    if ('refusal' in reading) {
      await letters.submit({ delivery, refusal: reading.refusal });
      return;
    }
    const { envelope } = reading;
    const action = decide(await recorder.submit(envelope));
    switch (action.kind) {
      case 'ack':
        delivery.ack();
        probe('ingest.acked', [envelope.messageId]);
        if (action.enqueue !== undefined) await enqueue(envelope, action.enqueue);
        return;
      case 'dead-letter':
        await letters.submit({ delivery, refusal: action.refusal });
        return;
      case 'give back':
        gate.shut(action.error);
        delivery.giveBack();
    }
  };

  /** Best effort: what is not enqueued now, the sweeper enqueues. The message is recorded and acked already. */
  const enqueue = async (
    { messageId, traceparent }: Envelope,
    at: { generation: number; failures: number },
  ): Promise<void> => {
    if (deps.attempts === undefined || queues.fault() !== undefined) return;
    try {
      await queues.add(actor, {
        messageId,
        generation: at.generation,
        attemptsLeft: deps.attempts - at.failures,
        ...(traceparent === undefined ? {} : { traceparent }),
      });
      probe('ingest.enqueued', [messageId]);
    } catch (error) {
      rarely('enqueue', () =>
        log.warn(
          { event: 'ingest.enqueue.failed', actor, messageId, err: error },
          `recorded, but not enqueued (the sweeper will): ${describe(error)}`,
        ),
      );
    }
  };

  /** Publishes the dead letter, and acks once it is confirmed; until then the delivery stays where it is. */
  const bury = async (delivery: Delivery, { reason, detail }: Refusal): Promise<void> => {
    let letter = deadLetterOf(delivery, actor, reason, detail);
    while (delivery.alive()) {
      const outcome = await deps.deadLetters.publish(letter);
      if (outcome.kind === 'confirmed') {
        const { messageId = '' } = delivery.properties as { messageId?: string };
        probe('ingest.deadlettered', [messageId]);
        delivery.ack();
        log.warn({ event: 'ingest.dead-letter', actor, messageId, reason, detail }, `refused: ${reason}`);
        return;
      }
      rarely('letter', () =>
        log.error(
          { event: 'ingest.dead-letter.failed', actor, outcome },
          'a dead letter is not confirmed; it stays unacked and is tried again',
        ),
      );
      if (outcome.kind === 'refused') letter = withoutForeignHeaders(letter);
      await pause(LETTER_RETRY_MS);
    }
  };

  return {
    take: (delivery) => {
      const work = settle(delivery).catch((error: unknown) => {
        log.error(
          { event: 'ingest.failed', actor, err: error },
          'a delivery could not be settled; it is given back',
        );
        delivery.giveBack();
      });
      open.add(work);
      void work.finally(() => open.delete(work));
    },
    idle: async () => {
      while (open.size > 0) await Promise.all(open);
    },
  };
}
