import type { Channel, ChannelModel } from 'amqplib';
import { explain, type ArgumentDifference } from './explain.js';
import { temporaryQueue, type Seen, type SeenQueue, type SeenThing } from './plan.js';
import { assertExchange, assertQueue, type Topology } from './topology.js';

/** What a passive declare tells of a queue. */
export interface Depth {
  /** Ready to be delivered. */
  readonly messages: number;
  readonly consumers: number;
}

/**
 * What stands on the broker, without the management API. A passive declare tells whether a thing exists; whether it is
 * as it should be, the broker tells only by refusing a declare of it: of what exists that declare changes nothing.
 * The broker names the first argument that differs, and no binding.
 */
export async function seeByDeclaring(model: ChannelModel, want: Topology): Promise<Seen> {
  const exchanges = new Map<string, SeenThing>();
  for (const spec of want.exchanges) {
    const exists = await onThrowAway(model, missingIsUndefined, (channel) =>
      channel.checkExchange(spec.name),
    );
    if (exists === undefined) continue;
    exchanges.set(spec.name, {
      differs: await differences(model, (channel) => assertExchange(channel, spec)),
    });
  }
  const queues = new Map<string, SeenQueue>();
  for (const spec of want.queues) {
    const depth = await depthOf(model, spec.name);
    if (depth !== undefined)
      queues.set(spec.name, {
        ...depth,
        differs: await differences(model, (channel) => assertQueue(channel, spec)),
      });
    const temporary = temporaryQueue(spec.name);
    const left = await depthOf(model, temporary);
    if (left !== undefined) queues.set(temporary, { ...left, differs: [] });
  }
  return { through: 'declares', exchanges, queues, bindings: undefined };
}

/** @returns undefined when there is no such queue */
export async function depthOf(model: ChannelModel, queue: string): Promise<Depth | undefined> {
  const found = await onThrowAway(model, missingIsUndefined, (channel) => channel.checkQueue(queue));
  return found === undefined ? undefined : { messages: found.messageCount, consumers: found.consumerCount };
}

/** How an existing thing differs from a declare of it: the first argument, or nothing. */
export function differences(
  model: ChannelModel,
  declare: (channel: Channel) => Promise<void>,
): Promise<ArgumentDifference[]> {
  const byMismatch = (error: unknown): ArgumentDifference[] => {
    const found = explain(error)?.mismatch;
    if (found === undefined) throw error;
    return [{ argument: found.argument, have: found.have, want: found.want }];
  };
  return onThrowAway(model, byMismatch, async (channel) => {
    await declare(channel);
    return [];
  });
}

/** The broker closes a channel on which it refuses something: each question has its own. */
async function onThrowAway<T, F>(
  model: ChannelModel,
  onRefusal: (error: unknown) => F,
  ask: (channel: Channel) => Promise<T>,
): Promise<T | F> {
  const channel = await model.createChannel();
  channel.on('error', () => undefined); // the call under way rejects with the same
  let answer: T;
  try {
    answer = await ask(channel);
  } catch (error) {
    return onRefusal(error);
  }
  await channel.close();
  return answer;
}

function missingIsUndefined(error: unknown): undefined {
  if ((error as { code?: unknown }).code !== 404) throw error;
}
