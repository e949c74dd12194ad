import { connect } from 'node:net';
import { rabbitmq } from '../../stack/rabbitmq.js';
import { choosePorts } from '../../stack/ports.js';
import { folderOf } from '../../stack/folder.js';
import { brokerNode, brokerPrograms, nodeName, type BrokerNode } from './broker-node.js';
import { until } from './until.js';

/** Three RabbitMQ nodes on loopback, joined. */
export interface Cluster {
  readonly nodes: readonly BrokerNode[];
  /** The addresses of all, as RABBITMQ_URL takes them. */
  readonly url: string;
  /** Who leads a quorum queue, and which of its members run. Asked of a node that runs. */
  membersOf(queue: string): Promise<Members>;
  /**
   * Makes a queue that was declared just now outlive a SIGKILL. RabbitMQ 3.10 writes a new member into its directory
   * on disk at a clean stop or minutes later; a younger one does not come back with its node, and the next kill
   * would take the majority.
   */
  settle(): Promise<void>;
  remove(): Promise<void>;
}

export interface Members {
  readonly leader: BrokerNode;
  readonly followers: readonly BrokerNode[];
}

/** @throws when a node does not come up, with the end of its log */
export async function startCluster(root: string, name: string): Promise<Cluster> {
  const programs = await brokerPrograms();
  const taken = new Set<number>();
  const shared = await choosePorts(['epmd'], {}, taken);
  const own = rabbitmq.portNames.filter((port) => port !== 'epmd');
  const names = [1, 2, 3].map((n) => `${name}-${n}`);
  const settings = [
    'cluster_partition_handling = pause_minority',
    'net_ticktime = 10',
    'cluster_formation.peer_discovery_backend = classic_config',
  ];
  const mapper = await brokerNode({ root, name: `${name}-epmd`, ports: shared, programs, part: 'mapper' });
  const nodes: BrokerNode[] = [];
  for (const [index, one] of names.entries()) {
    // The first founds the cluster; each other knows it and itself.
    const known = index === 0 ? [one] : [names[0] ?? one, one];
    nodes.push(
      await brokerNode({
        root,
        name: one,
        ports: { ...(await choosePorts(own, {}, taken)), ...shared },
        programs,
        part: 'mapped',
        like: `${name}-epmd`,
        settings: [
          ...settings,
          ...known.map(
            (peer, n) =>
              `cluster_formation.classic_config.nodes.${n + 1} = ${nodeName(folderOf(root, peer))}`,
          ),
        ],
      }),
    );
  }
  const remove = async (): Promise<void> => {
    await Promise.all(nodes.map((node) => node.kill().catch(() => undefined)));
    for (const node of [...nodes, mapper]) await node.remove();
  };
  const anyRunning = async (): Promise<BrokerNode> => {
    for (const node of nodes) if ((await node.pids()).length > 0) return node;
    throw new Error('no node of the cluster runs');
  };
  try {
    await mapper.start();
    await until('the port mapper listens', () => listens(shared['epmd'] ?? 0));
    await nodes[0]?.start();
    await Promise.all(nodes.slice(1).map((node) => node.start()));
  } catch (error) {
    await remove();
    throw error;
  }
  return {
    nodes,
    url: nodes.map(({ url }) => url).join(','),
    membersOf: async (queue) => readMembers(nodes, await status(await anyRunning(), queue), queue),
    settle: async () => {
      const everywhere =
        '[rpc:call(N, dets, sync, [T]) || N <- [node() | nodes()], T <- rpc:call(N, dets, all, [])].';
      await (await anyRunning()).tool('rabbitmqctl', ['eval', everywhere]);
    },
    remove,
  };
}

const status = (node: BrokerNode, queue: string): Promise<string> =>
  node.tool('rabbitmq-queues', ['quorum_status', queue, '--formatter', 'json']);

function readMembers(nodes: readonly BrokerNode[], printed: string, queue: string): Members {
  const rows = JSON.parse(printed) as Record<string, string>[];
  const inState = (state: string): BrokerNode[] =>
    nodes.filter(({ name }) => rows.some((row) => row['Node Name'] === name && row['Raft State'] === state));
  const [leader] = inState('leader');
  if (leader === undefined) throw new Error(`${queue} has no leader now: ${printed}`);
  return { leader, followers: inState('follower') };
}

const listens = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
    socket.once('connect', () => socket.destroy());
  });
