import { cpus } from 'node:os';
import { EVENTS_EXCHANGE } from '../../src/broker/index.js';
import { costOfAll, ownCpuSeconds, residentMb, startMeter } from '../cpu.js';
import { limitOf, type Way } from '../limit.js';
import { interleave, median, round, type Part, type Rate } from '../rounds.js';
import { openServers } from '../stores.js';
import { drainRun, latencyAt, openPath, type Drained, type Path } from './drain.js';
import { addAll, consumeAll, fill, insertAll } from './raw.js';

interface Sizes {
  readonly rounds: number;
  readonly backlog: number;
  readonly raw: number;
  readonly straightforward: number;
  readonly memoryRuns: number;
  readonly latencySeconds: number;
}

const FULL: Sizes = {
  rounds: 3,
  backlog: 50_000,
  raw: 20_000,
  straightforward: 4_000,
  memoryRuns: 4,
  latencySeconds: 30,
};
const QUICK: Sizes = {
  rounds: 1,
  backlog: 6_000,
  raw: 3_000,
  straightforward: 600,
  memoryRuns: 1,
  latencySeconds: 3,
};
const WARM_UP = 10_000;

/** From a full mailbox to the inbox and the job queue; the processors are away. */
export async function benchIngest(quick: boolean, note: (line: string) => void): Promise<object> {
  const bench = await openServers(note);
  try {
    const path = await openPath(bench);
    try {
      return await measure(path, quick ? QUICK : FULL, quick, note);
    } finally {
      await path.close();
    }
  } finally {
    await bench.close();
  }
}

async function measure(
  path: Path,
  sizes: Sizes,
  quick: boolean,
  note: (line: string) => void,
): Promise<object> {
  const { bench, channel } = path;
  const { RABBITMQ_URL, MONGODB_URI, REDIS_URL } = bench.urls;
  const raw = (name: string, run: () => Promise<number>, before?: () => Promise<void>): Part<Rate> => ({
    name,
    run: async () => {
      await before?.();
      const cost = await startMeter(bench, ownCpuSeconds);
      const seconds = await run();
      return { rate: round(sizes.raw / seconds, 0), cpu: round(costOfAll(cost(sizes.raw)), 4) };
    },
  });
  const filled = async (): Promise<void> => {
    await path.empty();
    await fill(channel, EVENTS_EXCHANGE, sizes.raw, (nth) => `raw-${nth}`);
  };
  const steps: Part<Rate>[][] = [
    [1, 50].map((every) =>
      raw(`consume, ack every ${every}`, () => consumeAll(RABBITMQ_URL, sizes.raw, every), filled),
    ),
    [1, 2, 4].map((parallel) =>
      raw(`insertMany 100, ${parallel} in flight`, () => insertAll(MONGODB_URI, sizes.raw, parallel)),
    ),
    [1, 4].map((parallel) =>
      raw(`addBulk 100, ${parallel} in flight`, () => addAll(REDIS_URL, sizes.raw, parallel)),
    ),
  ];
  const ours = async (duplicates: number): Promise<Drained> => {
    const ingest = await path.startIngest();
    try {
      await drainRun(path, ingest, WARM_UP);
      return await drainRun(path, ingest, sizes.backlog, duplicates);
    } finally {
      await ingest.stop('SIGTERM');
    }
  };
  const straightforward = async (): Promise<Drained> => {
    const one = await path.startStraightforward();
    try {
      await drainRun(path, one, Math.ceil(sizes.straightforward / 4));
      return await drainRun(path, one, sizes.straightforward);
    } finally {
      await one.stop('SIGKILL');
    }
  };
  const parts: Part<Rate | Drained>[] = [
    ...steps.flat(),
    { name: 'ours', run: () => ours(0) },
    { name: 'ours, 10 % duplicates', run: () => ours(0.1) },
    { name: 'straightforward', run: straightforward },
  ];
  note('warming up …');
  for (const step of steps) await step.at(-1)?.run();
  const results = await interleave(parts, sizes.rounds, note);
  const rateOf = (name: string): number => median((results.get(name) ?? []).map(({ rate }) => rate));
  const ways = steps.map((step) =>
    step.map(({ name }): Way => ({
      name,
      rate: rateOf(name),
      cpuPer1000: median((results.get(name) as Rate[]).map(({ cpu }) => cpu)),
    })),
  );
  const { limit, byCpu, ways: taken } = limitOf(ways, cpus().length);
  note('latency, memory …');
  const { latencyMs, memoryMb } = await behaviour(path, sizes);
  const drained = results.get('ours') as Drained[];
  const cpuOf = (of: keyof Drained['cpu']): number => median(drained.map(({ cpu }) => cpu[of]));
  return {
    name: 'ingest',
    unit: 'messages/s',
    ours: rateOf('ours'),
    limit,
    straightforward: rateOf('straightforward'),
    ratioToLimit: round(rateOf('ours') / limit, 3),
    timesStraightforward: round(rateOf('ours') / rateOf('straightforward'), 1),
    cpuPer1000: {
      ingest: cpuOf('client'),
      broker: cpuOf('rabbitmq'),
      mongodb: cpuOf('mongodb'),
      redis: cpuOf('redis'),
    },
    latencyMs,
    limitParts: { ways: taken, byCpu, steps: ways },
    duplicates: {
      part: 0.1,
      ours: rateOf('ours, 10 % duplicates'),
      ratio: round(rateOf('ours, 10 % duplicates') / rateOf('ours'), 3),
    },
    memoryMb,
    rounds: Object.fromEntries([...results].map(([name, all]) => [name, all.map(({ rate }) => rate)])),
    cores: cpus().length,
    quick,
  };
}

/** One process over all of it: how long a lone message takes, and its resident memory over several full mailboxes. */
async function behaviour(path: Path, sizes: Sizes): Promise<Record<'latencyMs' | 'memoryMb', object>> {
  const ingest = await path.startIngest();
  try {
    await drainRun(path, ingest, WARM_UP);
    const latencyMs = await latencyAt(path, 200, sizes.latencySeconds);
    await drainRun(path, ingest, sizes.backlog);
    const peaks: number[] = [];
    for (let run = 0; run < sizes.memoryRuns; run += 1) {
      const samples: number[] = [];
      const timer = setInterval(() => samples.push(residentMb(ingest.pid)), 200);
      await drainRun(path, ingest, sizes.backlog);
      clearInterval(timer);
      peaks.push(round(Math.max(...samples), 1));
    }
    return { latencyMs, memoryMb: { peaks, messagesEach: sizes.backlog } };
  } finally {
    await ingest.stop('SIGTERM');
  }
}
