import { connect, type ChannelModel, type ConfirmChannel } from 'amqplib';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { freshStores, management, type Stores } from '../support/stores.js';
import { actorsModule, drain, topologyCommand } from '../support/topology.js';
import { until } from '../support/until.js';

let stores: Stores;
let model: ChannelModel;
let channel: ConfirmChannel;
let vhost: string;
let env: NodeJS.ProcessEnv;

beforeAll(async () => {
  stores = await freshStores();
  vhost = new URL(stores.env.RABBITMQ_URL).pathname.slice(1);
  model = await connect(stores.env.RABBITMQ_URL);
  model.on('error', () => undefined);
});
afterAll(async () => {
  await model.close();
  await stores.drop();
});
beforeEach(async () => {
  channel = await model.createConfirmChannel();
  channel.on('error', () => undefined);
  env = {
    ...stores.env,
    TWINBOX_PROCESSORS: actorsModule({ a: ['order.*'], b: ['order.placed', 'user.#'] }),
  };
});
afterEach(async () => {
  await channel.close();
  for (const { name } of (await management('GET', `queues/${vhost}`)) as { name: string }[])
    await management('DELETE', `queues/${vhost}/${name}`);
  for (const { name } of (await management('GET', `exchanges/${vhost}`)) as { name: string }[])
    if (name !== '' && !name.startsWith('amq.')) await management('DELETE', `exchanges/${vhost}/${name}`);
});

const blind = (): NodeJS.ProcessEnv => ({ ...env, RABBITMQ_MANAGEMENT_URL: '' });

test('plan tells everything that is missing and changes nothing; check fails; apply makes it; then there is no difference', async () => {
  const plan = await topologyCommand(env, 'plan');
  expect(plan.code).toBe(0);
  for (const line of [
    '+ exchange twinbox.in (topic, alternate-exchange twinbox.in.unrouted)',
    '+ queue twinbox.a (x-queue-type quorum, x-delivery-limit 50',
    "+ binding twinbox.events → twinbox.b 'user.#'",
    "+ binding twinbox.in → twinbox.b 'user.#'",
    'seen through the management API',
  ])
    expect(plan.text).toContain(line);
  expect(await management('GET', `queues/${vhost}`)).toEqual([]);
  expect((await topologyCommand(env, 'check')).code).toBe(1);

  const apply = await topologyCommand(env, 'apply');
  expect(apply).toMatchObject({
    code: 0,
    text: expect.stringContaining('queue twinbox.a is declared') as string,
  });
  expect(await topologyCommand(env, 'check')).toMatchObject({
    code: 0,
    text: expect.stringContaining('no difference') as string,
  });
  const json = JSON.parse((await topologyCommand(env, 'plan', '--json')).text) as object;
  expect(json).toMatchObject({ vhost, through: 'management', differences: [], notes: [] });
  expect((await topologyCommand(env, 'apply')).code).toBe(0);
});

test('without the management API the same is declared; what cannot be seen is told', async () => {
  const before = await topologyCommand(blind(), 'check');
  expect(before).toMatchObject({ code: 1, text: expect.stringContaining('+ queue twinbox.b.dlq') as string });
  expect(await management('GET', `queues/${vhost}`)).toEqual([]);
  expect((await topologyCommand(blind(), 'apply')).code).toBe(0);
  const after = await topologyCommand(blind(), 'check');
  expect(after.code).toBe(0);
  expect(after.text).toContain('bindings, and queues of actors that there are no more, cannot be seen');
  expect((await topologyCommand(env, 'check')).text).toContain('no difference');
});

test('a management API that does not answer is told, and the rest goes on without it', async () => {
  const away = { ...env, RABBITMQ_MANAGEMENT_URL: 'http://127.0.0.1:1' };
  const plan = await topologyCommand(away, 'plan');
  expect(plan.code).toBe(0);
  expect(plan.text).toContain('the management API at 127.0.0.1:1 does not answer');
  expect(plan.text).toContain('seen through declares');
  const wrong = new URL(env.RABBITMQ_MANAGEMENT_URL ?? '');
  wrong.password = 'not-it';
  const refused = await topologyCommand({ ...env, RABBITMQ_MANAGEMENT_URL: wrong.href }, 'plan');
  expect(refused.text).toContain('answers 401');
  expect(refused.text).not.toContain('not-it');
});

test('what others publish to twinbox.in comes to the same mailboxes; what nobody is bound to is kept and can be seen', async () => {
  await topologyCommand(env, 'apply');
  let returned = 0;
  channel.on('return', () => (returned += 1));
  for (const key of ['order.placed', 'user.left', 'nobody.listens'])
    channel.publish('twinbox.in', key, Buffer.from('{}'), { messageId: key, mandatory: true });
  channel.publish('twinbox.events', 'nobody.listens', Buffer.from('{}'), {
    messageId: 'ours',
    mandatory: true,
  });
  await channel.waitForConfirms();
  expect(returned).toBe(1); // the relay's exchange hides nothing
  const ids = async (queue: string): Promise<string[]> => (await drain(channel, queue)).map(({ id }) => id);
  expect(await ids('twinbox.a')).toEqual(['order.placed']);
  expect(await ids('twinbox.b')).toEqual(['order.placed', 'user.left']);
  expect(await ids('twinbox.in.unrouted')).toEqual(['nobody.listens']);
});

test('a queue and an exchange that differ: argument, what is there, what must be, and the command', async () => {
  await channel.assertQueue('twinbox.a', {
    durable: true,
    arguments: { 'x-queue-type': 'quorum', 'x-delivery-limit': 20 },
  });
  await channel.assertExchange('twinbox.in', 'fanout', { durable: true });
  for (const seen of [env, blind()]) {
    const { code, text } = await topologyCommand(seen, 'apply');
    expect(code).toBe(1);
    expect(text).toContain("left: exchange 'twinbox.in' exists with type fanout, and must have topic");
    expect(text).toContain('twinbox topology apply --replace-exchange twinbox.in');
    expect(text).toMatch(/left: queue 'twinbox.a' exists with x-\S+ (20|not set), and must have \S+/);
    expect(text).toContain('twinbox topology apply --migrate-queue twinbox.a');
  }
  const { text } = await topologyCommand(env, 'plan');
  expect(text).toContain("queue 'twinbox.a' exists with x-delivery-limit 20, and must have 50");
  expect(text).toContain("queue 'twinbox.a' exists with x-overflow not set, and must have reject-publish");

  // The exchange is made anew: what others have bound to it is bound again.
  await channel.assertQueue('of-others', { durable: true });
  await channel.bindQueue('of-others', 'twinbox.in', 'theirs');
  const replaced = await topologyCommand(
    env,
    'apply',
    '--replace-exchange',
    'twinbox.in',
    '--migrate-queue',
    'twinbox.a',
  );
  expect(replaced).toMatchObject({ code: 0 });
  channel.publish('twinbox.in', 'theirs', Buffer.from('{}'), { messageId: 'theirs' });
  channel.publish('twinbox.in', 'order.placed', Buffer.from('{}'), { messageId: 'ours' });
  await channel.waitForConfirms();
  expect(await drain(channel, 'of-others')).toMatchObject([{ id: 'theirs' }]);
  expect(await drain(channel, 'twinbox.a')).toMatchObject([{ id: 'ours' }]);
  expect((await topologyCommand(env, 'check')).code).toBe(0);
});

test('old bindings and mailboxes are named, and removed on request alone; a queue that holds a message stays', async () => {
  const earlier = actorsModule({ a: ['order.*', 'old.*'], gone: ['gone.*'], full: ['full.*'] });
  await topologyCommand({ ...env, TWINBOX_PROCESSORS: earlier }, 'apply');
  channel.publish('twinbox.events', 'full.glass', Buffer.from('{}'), { messageId: 'kept' });
  await channel.waitForConfirms();
  expect((await topologyCommand(env, 'apply')).code).toBe(0);
  const { text } = await topologyCommand(env, 'plan');
  expect(text).toContain("- binding twinbox.events → twinbox.a 'old.*': no actor declares it");
  expect(text).toContain('- queue twinbox.gone (');
  expect(text).toContain('- queue twinbox.full (');
  expect((await topologyCommand(env, 'check')).code).toBe(1);

  const removal = await topologyCommand(env, 'apply', '--remove-old');
  expect(removal.code).toBe(1);
  expect(removal.text).toContain("twinbox.a is no longer bound to twinbox.events with 'old.*'");
  expect(removal.text).toContain('queue twinbox.gone is deleted; it was empty');
  expect(removal.text).toContain('left: twinbox.full holds content (ready: 1) and stays as it is');
  await until('they are gone', async () => {
    const queues = (await management('GET', `queues/${vhost}`)) as { name: string }[];
    return queues.every(({ name }) => !name.startsWith('twinbox.gone'));
  });
  expect(await drain(channel, 'twinbox.full')).toMatchObject([{ id: 'kept' }]);
  const left = JSON.parse((await topologyCommand(env, 'plan', '--json')).text) as { differences: object[] };
  expect(left.differences).toMatchObject([{ kind: 'queue-old', queue: 'twinbox.full' }]);
});

test('a mistake in the command is a usage, a missing address a fault of the configuration', async () => {
  expect(await topologyCommand(env, 'plan', '--remove-old')).toMatchObject({ code: 2 });
  expect(await topologyCommand(env, 'destroy')).toMatchObject({ code: 2 });
  expect(await topologyCommand({ ...env, RABBITMQ_URL: '' }, 'plan')).toMatchObject({ code: 78 });
  const unknown = await topologyCommand(env, 'apply', '--migrate-queue', 'twinbox.x');
  expect(unknown).toMatchObject({
    code: 1,
    text: expect.stringContaining('is no queue of Twinbox') as string,
  });
});
