import type { Channel, ChannelModel, ConfirmChannel } from 'amqplib';
import { deleteEmptyQueue, QueueKept } from './delete-queue.js';
import { moveMessages } from './move.js';
import { depthOf, differences } from './passive.js';
import { temporaryQueue, type SeenBinding } from './plan.js';
import { assertQueue, type QueueSpec, type Topology } from './topology.js';

export interface Migration {
  readonly model: ChannelModel;
  readonly topology: Topology;
  /** What is bound on the live broker; undefined when that cannot be seen. */
  readonly bindings: readonly SeenBinding[] | undefined;
  /** See `deleteEmptyQueue`. */
  readonly messagesOf?: ((queue: string) => Promise<number | undefined>) | undefined;
  /** What was done, a line each. */
  readonly say: (line: string) => void;
}

/** One of our two queues on the way, with the exchange that leads to it and keeps the routing keys. */
interface Stop {
  readonly queue: string;
  readonly through: string;
}

/**
 * Makes a queue anew with the arguments it must have, and keeps its content, its order and its bindings: everything goes
 * to a temporary queue, the old one is deleted, the new one declared, and everything comes back. Where it stands is read
 * from the broker alone, so whatever dies in the middle, the same call goes on from there. At every moment one of the
 * two is bound. Two at once are refused.
 *
 * What is published while the bindings change hands (twice, for milliseconds) may arrive twice, or overtake.
 * @throws {QueueKept} when others consume the old queue; what the broker says otherwise
 */
export async function migrateQueue(migration: Migration, name: string): Promise<void> {
  const { model, topology, say } = migration;
  const spec = topology.queues.find((queue) => queue.name === name);
  if (spec === undefined)
    throw new Error(
      `${name} is no queue of Twinbox; there are: ${topology.queues.map((queue) => queue.name).join(', ')}`,
    );
  const channel = await openChannel(model);
  await lock(channel, name);
  const [away, back]: [Stop, Stop] = [
    { queue: temporaryQueue(name), through: temporaryQueue(name) },
    { queue: name, through: `${name}.migrated` },
  ];
  const old = await depthOf(model, name);
  const isWrong = old !== undefined && (await differences(model, (one) => assertQueue(one, spec))).length > 0;
  if (!isWrong && (await depthOf(model, away.queue)) === undefined) {
    say(`${name} is as it must be`);
    await forget(channel, [away, back]);
    return;
  }
  const bindings = bindingsOf(migration, [away, back]);
  if (isWrong) {
    if (old.consumers > 0)
      throw new QueueKept(`${name} is consumed by ${old.consumers}: stop ingest first, then run this again`);
    const { messagesOf } = migration;
    await replace(migration, { from: name, to: away, spec, bindings, messagesOf });
    say(`${name} is deleted; its content stands in ${away.queue}`);
  }
  await replace(migration, { from: away.queue, to: back, spec, bindings });
  await forget(channel, [away, back]);
  await channel.close();
  say(`${name} is made anew`);
}

interface Replacement {
  readonly from: string;
  readonly to: Stop;
  readonly spec: QueueSpec;
  readonly bindings: readonly SeenBinding[];
  readonly messagesOf?: Migration['messagesOf'];
}

/** The content of `from` goes to `to`, then the bindings, then what came meanwhile; then `from` is deleted. */
async function replace(
  { model, say }: Migration,
  { from, to, spec, bindings, messagesOf }: Replacement,
): Promise<void> {
  // Its own: a channel of RabbitMQ 3.10 that knew a classic queue crashes on a quorum queue of the same name.
  const channel = await openChannel(model);
  if ((await depthOf(model, to.queue)) === undefined) await assertQueue(channel, { ...spec, name: to.queue });
  await channel.assertExchange(to.through, 'fanout', { durable: true });
  await channel.bindQueue(to.queue, to.through, '');
  const { messageCount } = await channel.checkQueue(from);
  // Bound still, `from` keeps the order of what arrives; as soon as it is empty the bindings change hands.
  const moved = await moveMessages(channel, from, to.through, 2 * messageCount + 1_000);
  for (const one of bindings) await bind(channel, to.queue, one);
  for (const one of bindings) await channel.unbindQueue(from, one.exchange, one.pattern, one.arguments);
  const rest = await moveMessages(channel, from, to.through, Number.POSITIVE_INFINITY);
  say(`${moved + rest} messages moved from ${from} to ${to.queue}`);
  await channel.checkQueue(from); // after the acks: the broker answers in order
  await deleteEmptyQueue({
    model,
    queue: from,
    empty: () => moveMessages(channel, from, to.through, Number.POSITIVE_INFINITY),
    messagesOf,
  });
  await channel.close();
}

async function openChannel(model: ChannelModel): Promise<ConfirmChannel> {
  const channel = await model.createConfirmChannel();
  channel.on('error', () => undefined); // the call under way rejects with the same
  return channel;
}

const bind = (channel: Channel, queue: string, { exchange, pattern, arguments: args }: SeenBinding) =>
  channel.bindQueue(queue, exchange, pattern, args);

/** What must be bound, and what else is bound to the queue or, after a run that was killed, to the temporary one. */
function bindingsOf({ topology, bindings }: Migration, [away, back]: readonly [Stop, Stop]): SeenBinding[] {
  const own = [away.through, back.through];
  const wanted = topology.bindings
    .filter(({ queue }) => queue === back.queue)
    .map((one): SeenBinding => ({ ...one, arguments: {} }));
  const seen = (bindings ?? []).filter(
    ({ queue, exchange }) => [away.queue, back.queue].includes(queue) && !own.includes(exchange),
  );
  if (bindings === undefined && topology.unjudged.includes(back.queue))
    throw new Error(
      `what is bound to ${back.queue} is not known: its actor cannot be loaded. Mend the actor's file, or set RABBITMQ_MANAGEMENT_URL`,
    );
  const known = new Map([...wanted, ...seen].map((one) => [JSON.stringify({ ...one, queue: '' }), one]));
  return [...known.values()];
}

/** An exclusive queue lives as long as its connection, and no other connection may declare it. */
async function lock(channel: Channel, name: string): Promise<void> {
  try {
    await channel.assertQueue(`${name}.migrating.lock`, { exclusive: true, durable: false });
  } catch (error) {
    if ((error as { code?: unknown }).code !== 405) throw error;
    throw new QueueKept(`another run migrates ${name} at this moment; let it end`);
  }
}

/** The helping exchanges go, and the lock. */
async function forget(channel: Channel, [away, back]: readonly [Stop, Stop]): Promise<void> {
  await channel.deleteExchange(away.through);
  await channel.deleteExchange(back.through);
  await channel.deleteQueue(`${back.queue}.migrating.lock`);
}
