import type { Channel, ChannelModel } from 'amqplib';
import { describe } from '../runtime/errors.js';
import { deleteEmptyQueue, QueueKept } from './delete-queue.js';
import { mismatchText } from './explain.js';
import { migrateQueue } from './migrate-queue.js';
import type { Difference, Plan, Seen, SeenBinding } from './plan.js';
import {
  assertExchange,
  assertQueue,
  declareTopology,
  type ExchangeSpec,
  type Topology,
} from './topology.js';

export interface Application {
  readonly model: ChannelModel;
  readonly topology: Topology;
  readonly seen: Seen;
  readonly plan: Plan;
  readonly wishes: Wishes;
  /** See `deleteEmptyQueue`. */
  readonly messagesOf?: ((queue: string) => Promise<number | undefined>) | undefined;
  /** What was done, a line each. */
  readonly say: (line: string) => void;
}

/** What is done on request alone. */
export interface Wishes {
  readonly removeOld: boolean;
  readonly migrateQueues: readonly string[];
  readonly replaceExchanges: readonly string[];
}

/**
 * Makes good what a plan found: declares what is missing, then does what was wished for. Nothing that differs is touched
 * otherwise, and no queue that holds a message is ever deleted.
 * @returns what is left as it is though it was wished for, or has to be wished for
 * @throws what the broker says when it refuses something, or is gone
 */
export async function applyPlan(application: Application): Promise<string[]> {
  const { model, topology, plan, seen, wishes } = application;
  const left: string[] = [];
  for (const name of wishes.replaceExchanges)
    await replaceExchange(application, exchangeNamed(topology, name));
  await declareMissing(application);
  for (const queue of wishes.migrateQueues)
    await unlessKept(left, () => migrateQueue({ ...application, bindings: seen.bindings }, queue));
  const channel = await quietChannel(model);
  for (const one of plan.differences) {
    if (one.kind === 'binding-old' && wishes.removeOld)
      await removeBinding(application, channel, one.binding);
    if (one.kind === 'queue-old' && wishes.removeOld)
      await unlessKept(left, () => removeQueue(application, one.queue));
    const notWished = unwished(one, wishes);
    if (notWished !== undefined) left.push(notWished);
  }
  await channel.close();
  return [...new Set(left)];
}

function unwished(one: Difference, wishes: Wishes): string | undefined {
  if (one.kind === 'queue-differs' && !wishes.migrateQueues.includes(one.queue))
    return mismatchText({ ...one, what: 'queue', name: one.queue });
  if (one.kind === 'exchange-differs' && !wishes.replaceExchanges.includes(one.exchange))
    return mismatchText({ ...one, what: 'exchange', name: one.exchange });
  if (one.kind === 'migration-unfinished' && !wishes.migrateQueues.includes(one.queue))
    return `a migration of ${one.queue} was interrupted: \`twinbox topology apply --migrate-queue ${one.queue}\` goes on with it`;
  return undefined;
}

/** Declares all that does not differ, and binds everything: what is bound already stays so. */
async function declareMissing({ model, topology, plan, seen, say }: Application): Promise<void> {
  const channel = await quietChannel(model);
  for (const one of plan.differences) {
    if (one.kind === 'exchange-missing') {
      await assertExchange(channel, one.exchange);
      say(`exchange ${one.exchange.name} is declared`);
    }
    if (one.kind === 'queue-missing') {
      await assertQueue(channel, one.queue);
      say(`queue ${one.queue.name} is declared`);
    }
  }
  await declareTopology(channel, { exchanges: [], queues: [], bindings: topology.bindings });
  for (const one of plan.differences)
    if (one.kind === 'binding-missing')
      say(`${one.binding.queue} is bound to ${one.binding.exchange} with '${one.binding.pattern}'`);
  if (seen.bindings === undefined) say(`all ${topology.bindings.length} bindings are made, or were there`);
  await channel.close();
}

async function removeBinding(
  { say }: Application,
  channel: Channel,
  { queue, exchange, pattern, arguments: args }: SeenBinding,
): Promise<void> {
  await channel.unbindQueue(queue, exchange, pattern, args);
  say(`${queue} is no longer bound to ${exchange} with '${pattern}'`);
}

/** Of an actor that is gone; a queue with content stays. */
async function removeQueue({ model, messagesOf, say }: Application, queue: string): Promise<void> {
  const channel = await quietChannel(model);
  const { messageCount, consumerCount } = await channel.checkQueue(queue);
  await channel.close();
  if (messageCount > 0)
    throw new QueueKept(
      `${queue} holds content (ready: ${messageCount}) and stays as it is; when nobody needs it: \`rabbitmqctl purge_queue ${queue}\`, then this again`,
    );
  if (consumerCount > 0) throw new QueueKept(`${queue} is consumed by ${consumerCount} and stays as it is`);
  await deleteEmptyQueue({ model, queue, messagesOf });
  say(`queue ${queue} is deleted; it was empty`);
}

function exchangeNamed({ exchanges }: Topology, name: string): ExchangeSpec {
  const spec = exchanges.find((exchange) => exchange.name === name);
  if (spec !== undefined) return spec;
  throw new Error(
    `${name} is no exchange of Twinbox; there are: ${exchanges.map((exchange) => exchange.name).join(', ')}`,
  );
}

/**
 * Deletes an exchange and declares it as it must be, with the bindings it had and must have. An exchange holds no
 * messages; what is published in between is returned or refused, and published again by whoever waits for confirms.
 */
async function replaceExchange(
  { model, topology, seen, say }: Application,
  spec: ExchangeSpec,
): Promise<void> {
  const channel = await quietChannel(model);
  const had = (seen.bindings ?? []).filter(({ exchange }) => exchange === spec.name);
  const wanted = topology.bindings.filter(
    ({ exchange, queue }) => exchange === spec.name && seen.queues.has(queue),
  );
  await channel.deleteExchange(spec.name);
  await assertExchange(channel, spec);
  for (const { queue, exchange, pattern } of wanted) await channel.bindQueue(queue, exchange, pattern);
  for (const one of had) await channel.bindQueue(one.queue, one.exchange, one.pattern, one.arguments);
  await channel.close();
  say(`exchange ${spec.name} is made anew with its bindings`);
}

async function quietChannel(model: ChannelModel): Promise<Channel> {
  const channel = await model.createChannel();
  channel.on('error', () => undefined); // the call under way rejects with the same
  return channel;
}

async function unlessKept(left: string[], work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof QueueKept)) throw error;
    left.push(describe(error).replace('QueueKept: ', ''));
  }
}
