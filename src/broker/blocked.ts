import { randomUUID } from 'node:crypto';
import { bounded, TimeoutError } from '../runtime/loop.js';
import type { BrokerSource } from './access.js';
import { visitBroker } from './visit.js';

export type PublisherState =
  { readonly blocked: false } | { readonly blocked: true; readonly reason: string };

const ANSWER_MS = 1_000;

/**
 * Whether the broker blocks publishers (a memory or disk alarm), and its reason. A connection learns that only once it
 * publishes: so one transient message is sent through the default exchange to a queue that does not exist, where it
 * ends. Either its confirm comes, or the broker says that it blocks.
 * @param ms for connecting and the answer together
 * @throws when the broker cannot be reached or this user may not publish there
 */
export function readPublisherState(source: BrokerSource, name: string, ms: number): Promise<PublisherState> {
  return visitBroker(source, name, ms, async (model) => {
    const blocked = new Promise<PublisherState>((resolve) => {
      model.on('blocked', (reason: string) => resolve({ blocked: true, reason }));
    });
    const channel = await model.createConfirmChannel();
    const confirmed = new Promise<PublisherState>((resolve, reject) => {
      channel.on('error', reject);
      channel.publish(
        '',
        `twinbox.probe.${randomUUID()}`,
        Buffer.from('?'),
        { persistent: false },
        (error: unknown) => {
          if (error === null || error === undefined) resolve({ blocked: false });
        },
      );
    });
    try {
      return await bounded('the confirm', ANSWER_MS, Promise.race([blocked, confirmed]));
    } catch (error) {
      if (!(error instanceof TimeoutError)) throw error;
      return { blocked: true, reason: `it neither confirmed a message within ${ANSWER_MS} ms nor said why` };
    }
  });
}
