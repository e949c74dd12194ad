import { deadLetterOf, withoutForeignHeaders, type Delivery, type Publisher } from '../broker/index.js';
import { record, type Inbox, type Recorded } from '../inbox/index.js';
import { readDelivery, type Envelope, type ReadingLimits, type Refusal } from '../message/index.js';
import type { Queues } from '../queue/index.js';
import { describe } from '../runtime/errors.js';
import { gather } from '../runtime/gather.js';
import { sparsely, type Log } from '../runtime/log.js';
import { isOver, pause } from '../runtime/loop.js';
import type { Probe } from '../runtime/probe.js';
import { backoffMs } from '../runtime/retry.js';
import { decide, jointly, type Action } from './decide.js';
import type { Gate } from './gate.js';

export interface IntakeDeps extends ReadingLimits {
  readonly actor: string;
  /** Tries of a message; undefined when the actor's file cannot be loaded: recorded all the same, enqueued later. */
  readonly attempts: number | undefined;
  readonly inbox: Inbox;
  readonly queues: Queues;
  readonly deadLetters: Publisher;
  readonly gate: Gate;
  readonly proveWrite: () => Promise<void>;
  readonly batch: number;
  readonly lookInMs: number;
  readonly log: Log;
  readonly probe: Probe;
  /** Aborts when the process stops: what is held then goes back to its queue. */
  readonly signal: AbortSignal;
}

export interface Intake {
  /** Takes one delivery and sees it settled. */
  take(delivery: Delivery): void;
  /** Resolves when everything that was taken is settled and its enqueueing is over. */
  idle(): Promise<void>;
}

/** While one batch is on its way to the disk the next one is sent; more gained nothing. */
const INSERTS_AT_ONCE = 2;
const LETTER_RETRY_MS = 1_000;
/** A blip is waited out here; in a longer outage another process may be better off. */
const OUTAGE_HOLD_MS = 30_000;
/** What alone cannot be stored: well below the broker's own limit for an ack (30 minutes). */
const UNSTORABLE_HOLD_MS = 600_000;
const HOLD_BACKOFF = { firstMs: 500, capMs: 30_000 };
const sayFailed = [() => false, () => true] as const;
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
    { maxItems: deps.batch, parallel: INSERTS_AT_ONCE },
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
    const reading = readDelivery(delivery, deps);
    if ('refusal' in reading) {
      await letters.submit({ delivery, refusal: reading.refusal });
      return;
    }
    const { envelopes } = reading;
    const actions = await Promise.all(envelopes.map((envelope) => recordHeld(delivery, envelope)));
    const action = jointly(actions);
    switch (action.kind) {
      case 'ack':
        delivery.ack();
        probe(
          'ingest.acked',
          envelopes.map(({ messageId }) => messageId),
        );
        break;
      case 'dead-letter':
        await letters.submit({ delivery, refusal: action.refusal });
        break;
      case 'give back':
        delivery.giveBack();
        return;
    }
    await Promise.all(
      actions.map(async (one, index) => {
        const envelope = envelopes[index];
        if (one.kind === 'ack' && one.enqueue !== undefined && envelope !== undefined)
          await enqueue(envelope, one.enqueue);
      }),
    );
  };

  /**
   * What is not known to be stored stays here, unacked, and is recorded again when the inbox takes writes: alone
   * then, so that one message which cannot be stored holds back no other. It goes back to its queue, once, when
   * that takes too long or the process stops.
   */
  const recordHeld = async (delivery: Delivery, envelope: Envelope): Promise<Action> => {
    let action = decide(await recorder.submit(envelope));
    const began = performance.now();
    for (let tries = 0; action.kind === 'give back'; tries += 1) {
      let holdMs = OUTAGE_HOLD_MS;
      if (tries === 0 || (await deps.proveWrite().then(...sayFailed))) {
        gate.shut(action.error);
        await gate.opened(began + holdMs - performance.now());
      } else {
        // The inbox takes writes, but not this one: nobody else has to wait for that.
        holdMs = UNSTORABLE_HOLD_MS;
        const { messageId } = envelope;
        log.error(
          { event: 'ingest.unstorable', actor, messageId, err: action.error },
          `cannot be stored: ${describe(action.error)}`,
        );
        await pause(backoffMs(tries, HOLD_BACKOFF, Math.random()), deps.signal);
      }
      const mayTry = delivery.alive() && !isOver(deps.signal) && performance.now() < began + holdMs;
      if (!mayTry) return action;
      const [recorded] = await record(inbox, actor, [envelope], deps.lookInMs);
      if (recorded !== undefined) action = decide(recorded);
    }
    gate.proved();
    return action;
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
    while (delivery.alive() && !isOver(deps.signal)) {
      const outcome = await deps.deadLetters.publish(letter);
      if (outcome.kind === 'confirmed') {
        const { messageId = '' } = delivery.properties as { messageId?: string };
        probe('ingest.deadlettered', [messageId]);
        delivery.ack();
        // Two messages under one id: one of them is in nobody's hands now, and its producer goes on like that.
        log[reason === 'conflict' ? 'error' : 'warn'](
          { event: 'ingest.dead-letter', actor, messageId, reason, detail },
          `refused: ${reason}`,
        );
        return;
      }
      rarely('letter', () =>
        log.error(
          { event: 'ingest.dead-letter.failed', actor, outcome },
          'a dead letter is not confirmed; it stays unacked and is tried again',
        ),
      );
      if (outcome.kind === 'refused') letter = withoutForeignHeaders(letter);
      await pause(LETTER_RETRY_MS, deps.signal);
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
