import type { ChannelModel } from 'amqplib';
import { describe } from '../runtime/errors.js';
import type { BrokerSource } from './access.js';
import { visitBroker } from './visit.js';

/** What a passive declare tells of a queue, or why it tells nothing. */
export type QueueDepth =
  /** Ready to be delivered; what consumers hold unacked is not in it. */
  { readonly ready: number; readonly consumers: number } | { readonly fault: 'missing' | (string & {}) };

/**
 * How full these queues are, by passive declares. A queue that is missing is told and made by nobody.
 * @param ms for connecting and all the answers together
 * @throws when the broker cannot be reached
 */
export function readDepths(
  source: BrokerSource,
  name: string,
  queues: readonly string[],
  ms: number,
): Promise<ReadonlyMap<string, QueueDepth>> {
  return visitBroker(source, name, ms, async (model) => {
    const depths = await Promise.all(queues.map((queue) => depthOf(model, queue)));
    return new Map(queues.map((queue, index) => [queue, depths[index] as QueueDepth]));
  });
}

/** On a channel of its own: the broker closes the one on which it says 404. */
async function depthOf(model: ChannelModel, queue: string): Promise<QueueDepth> {
  const channel = await model.createChannel();
  channel.on('error', () => undefined); // the call under way rejects with the same
  try {
    const { messageCount, consumerCount } = await channel.checkQueue(queue);
    await channel.close();
    return { ready: messageCount, consumers: consumerCount };
  } catch (error) {
    return { fault: (error as { code?: unknown }).code === 404 ? 'missing' : describe(error, 200) };
  }
}
