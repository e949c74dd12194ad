import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { openBacklog, type Backlog } from '../support/backlog.js';
import type { BrokerNode } from '../support/broker-node.js';
import { startCluster, type Cluster, type Members } from '../support/cluster.js';
import { killAll, type Running } from '../support/processes.js';
import { freshDatabase } from '../support/stores.js';
import { until } from '../support/until.js';

/** Three nodes, and a queue with a member on each: whichever of them is killed, the relay goes on and loses nothing. */
const ROOT = join(import.meta.dirname, '..', '..', '.stack');
const WINDOW = 200;
let cluster: Cluster;
let database: Awaited<ReturnType<typeof freshDatabase>>;
let backlog: Backlog;
/** A node that is not about to be killed: by way of it the test looks at the broker. */
let observed: BrokerNode;

beforeAll(async () => {
  database = await freshDatabase();
  cluster = await startCluster(ROOT, 'relay-cluster');
  observed = cluster.nodes[0]!;
  backlog = await openBacklog(
    { ...process.env, DATABASE_URL: database.url, RABBITMQ_URL: cluster.url },
    () => observed.url,
  );
  await cluster.settle();
});
afterEach(killAll);
afterAll(async () => {
  await backlog.close();
  await cluster.remove();
  await database.drop();
});

/** The node that the relay is connected to, as the broker sees it. */
async function nodeOf(relay: Running): Promise<BrokerNode> {
  const printed = await observed.tool('rabbitmqctl', ['list_connections', 'pid', 'client_properties']);
  const mine = printed.split('\n').find((line) => line.includes(`#${relay.pid}.`));
  const node = cluster.nodes.find(({ name }) => mine?.startsWith(`<${name}.`));
  if (node === undefined) throw new Error(`no node knows the relay:\n${printed}`);
  return node;
}

interface Kill {
  readonly victim: BrokerNode;
  readonly leader: BrokerNode;
  /** Where the relay was connected. */
  readonly used: BrokerNode;
}

/** Kills a node in the middle of 10,000 rows, and counts every id while the node is away. */
async function killUnderLoad(
  relay: Running,
  choose: (members: Members, used: BrokerNode) => BrokerNode,
): Promise<Kill> {
  await backlog.pool.query('TRUNCATE outbox');
  const members = await until('every member of the queue runs', async () => {
    const found = await cluster.membersOf(backlog.queue);
    return found.followers.length === 2 && found;
  });
  const kill = await backlog.underLoad(10_000, async () => {
    await until('it publishes', async () => (await backlog.published()) > 500, { ms: 20_000 });
    const used = await nodeOf(relay);
    const victim = choose(members, used);
    observed = cluster.nodes.find((node) => node !== victim)!;
    await victim.kill();
    expect(await victim.pids()).toEqual([]);
    const out = await backlog.published();
    await until('it goes on', async () => (await backlog.published()) > out + 2 * WINDOW, { ms: 30_000 });
    return { victim, leader: members.leader, used };
  });
  expect((await backlog.account({ copies: WINDOW })).missing).toEqual([]);
  const now = await cluster.membersOf(backlog.queue);
  expect(now.followers).toHaveLength(1); // the victim's member was gone all that time
  expect([now.leader, ...now.followers]).not.toContain(kill.victim);
  return kill;
}

test('one relay lives through kill -9 of a follower, of the leader and of the node that it is connected to', async () => {
  const relay = backlog.start();
  const gone = (): number => relay.lines.filter(({ event }) => event === 'broker.gone').length;

  const follower = await killUnderLoad(relay, ({ followers }, used) =>
    followers.find((node) => node !== used)!,
  );
  expect(follower.victim).not.toBe(follower.leader);
  expect(gone()).toBe(0);
  await follower.victim.start();

  const leader = await killUnderLoad(relay, (members) => members.leader);
  expect(leader.victim).toBe(leader.leader);
  expect((await cluster.membersOf(backlog.queue)).leader).not.toBe(leader.victim);
  expect(gone()).toBe(leader.used === leader.victim ? 1 : 0);
  await leader.victim.start();

  const before = gone();
  const own = await killUnderLoad(relay, (_, used) => used);
  expect(own.victim).toBe(own.used);
  expect(gone()).toBe(before + 1);

  expect(await relay.stop()).toBe(0);
}, 180_000);
