import { cpus } from 'node:os';
import { costOfAll, ownCpuSeconds, startMeter } from '../cpu.js';
import { limitOf, type Way } from '../limit.js';
import { interleave, median, round, type Part } from '../rounds.js';
import { openMailbox, openOutbox, openServers, type Bench } from '../stores.js';
import { latencyAt, idleStatements, memoryOver } from './behaviour.js';
import { backlogRun, deepDrain, straightforwardRun, type Backlog, type Drained } from './drain.js';
import { claimAndMark, fillRawTable, publishConfirmed } from './raw.js';

export interface RelayResult {
  readonly name: 'relay';
  readonly unit: 'messages/s';
  readonly ours: number;
  readonly limit: number;
  readonly straightforward: number;
  readonly ratioToLimit: number;
  readonly timesStraightforward: number;
  /** Machine CPU seconds for 1,000 messages of our relay. */
  readonly cpuPer1000: { readonly relay: number; readonly postgres: number; readonly broker: number };
  /** From the INSERT of a row to its mark, by Postgres' clock: more than commit to confirm. */
  readonly latencyMs: { readonly p50: number; readonly p99: number; readonly eventsPerSecond: number };
  readonly [more: string]: unknown;
}

interface Sizes {
  readonly rounds: number;
  readonly backlog: number;
  readonly straightforward: number;
  readonly publishedBeside: number;
  readonly deepBacklog: number;
  readonly memoryMessages: number;
  readonly latencySeconds: number;
}

const FULL: Sizes = {
  rounds: 3,
  backlog: 20_000,
  straightforward: 3_000,
  publishedBeside: 1_000_000,
  deepBacklog: 500_000,
  memoryMessages: 200_000,
  latencySeconds: 30,
};
const QUICK: Sizes = {
  rounds: 1,
  backlog: 6_000,
  straightforward: 600,
  publishedBeside: 20_000,
  deepBacklog: 20_000,
  memoryMessages: 20_000,
  latencySeconds: 5,
};
const WARM_UP = 6_000;

/** What one run of a part gave. `cpu` in machine seconds for 1,000 messages. */
interface Rate {
  readonly rate: number;
  readonly cpu: number;
}

export async function benchRelay(quick: boolean, note: (line: string) => void): Promise<RelayResult> {
  const sizes = quick ? QUICK : FULL;
  const bench = await openServers(note);
  try {
    return await measure(bench, sizes, quick, note);
  } finally {
    await bench.close();
  }
}

async function measure(
  bench: Bench,
  sizes: Sizes,
  quick: boolean,
  note: (line: string) => void,
): Promise<RelayResult> {
  const mailbox = await openMailbox(bench);
  const [plain, full, raw] = [
    await openOutbox(bench, 'plain'),
    await openOutbox(bench, 'beside_published'),
    await openOutbox(bench, 'raw'),
  ];
  const relays = [await plain.startRelay(), await full.startRelay()] as const;
  try {
    note(`writing ${sizes.publishedBeside} published rows …`);
    await full.pool.query(
      `INSERT INTO outbox (type, body, published_at)
       SELECT 'bench.event', convert_to(repeat('x', 1024), 'UTF8'), now() FROM generate_series(1, $1)`,
      [sizes.publishedBeside],
    );
    await full.pool.query('VACUUM ANALYZE outbox');

    const backlog = (over: Partial<Backlog>): Backlog => ({
      bench,
      pool: plain.pool,
      relay: relays[0],
      rows: sizes.backlog,
      keys: 0,
      keep: false,
      mailbox,
      ...over, // prettier-ignore
    });
    const withCpu = async (messages: number, run: () => Promise<number>): Promise<Rate> => {
      const cost = await startMeter(bench, ownCpuSeconds);
      const seconds = await run();
      return { rate: round(messages / seconds, 0), cpu: round(costOfAll(cost(messages)), 4) };
    };
    const claim = (batch: number): Part<Rate> => ({
      name: `claim+mark ${batch}`,
      run: async () => {
        await fillRawTable(raw.pool, sizes.backlog);
        return withCpu(sizes.backlog, () => claimAndMark(raw.pool, sizes.backlog, batch));
      },
    });
    const publish = (window: number): Part<Rate> => ({
      name: `publish ${window}`,
      run: async () => {
        const result = await withCpu(sizes.backlog, () =>
          publishConfirmed(bench.urls.RABBITMQ_URL, sizes.backlog, window),
        );
        await mailbox.empty();
        return result;
      },
    });

    note('warming up …');
    await backlogRun(backlog({ rows: WARM_UP }));
    await backlogRun(backlog({ rows: WARM_UP, pool: full.pool, relay: relays[1], keep: true }));
    await claim(500).run();
    await publish(200).run();

    const claims = [claim(100), claim(500)];
    const publishes = [publish(100), publish(200), publish(500)];
    const drains = [
      { name: 'ours', run: () => backlogRun(backlog({})) },
      { name: 'ours, 2,000 keys', run: () => backlogRun(backlog({ keys: 2_000 })) },
      {
        name: 'ours, beside published',
        run: () => backlogRun(backlog({ pool: full.pool, relay: relays[1], keep: true })),
      },
      { name: 'straightforward', run: () => straightforwardRun(raw, mailbox, sizes.straightforward) },
    ];
    type Measured = Rate | Drained | { rate: number };
    const results = await interleave<Measured>([...claims, ...publishes, ...drains], sizes.rounds, note);
    const rateOf = (name: string): number => median((results.get(name) ?? []).map(({ rate }) => rate));
    const way = ({ name }: Part<Rate>): Way => ({
      name,
      rate: rateOf(name),
      cpuPer1000: median((results.get(name) as Rate[]).map(({ cpu }) => cpu)),
    });
    const steps = [claims.map(way), publishes.map(way)];
    const { limit, byCpu, ways } = limitOf(steps, cpus().length);

    note('memory, latency, idle …');
    const memoryMb = await memoryOver(backlog({}), sizes.memoryMessages);
    const latency = await latencyAt(plain.pool, 50, sizes.latencySeconds);
    const idleStatementsPerSecond = await idleStatements(plain.pool);
    note(`a backlog of ${sizes.deepBacklog} beside the published rows …`);
    const deep = await deepDrain(
      backlog({ pool: full.pool, relay: relays[1], rows: sizes.deepBacklog }),
      sizes.deepBacklog / 10,
    );
    const ours = results.get('ours') as Drained[];
    return {
      name: 'relay',
      unit: 'messages/s',
      ours: rateOf('ours'),
      limit,
      straightforward: rateOf('straightforward'),
      ratioToLimit: round(rateOf('ours') / limit, 3),
      timesStraightforward: round(rateOf('ours') / rateOf('straightforward'), 1),
      cpuPer1000: {
        relay: median(ours.map(({ cpu }) => cpu.client)),
        postgres: median(ours.map(({ cpu }) => cpu.postgres)),
        broker: median(ours.map(({ cpu }) => cpu.rabbitmq)),
      },
      latencyMs: latency,
      limitParts: { ways, byCpu, steps },
      keyed: {
        ours: rateOf('ours, 2,000 keys'),
        ratio: round(rateOf('ours, 2,000 keys') / rateOf('ours'), 3),
      },
      besidePublished: {
        rows: sizes.publishedBeside,
        ours: rateOf('ours, beside published'),
        ratio: round(rateOf('ours, beside published') / rateOf('ours'), 3),
      },
      deepDrain: deep,
      memoryMb,
      idleStatementsPerSecond,
      rounds: Object.fromEntries([...results].map(([name, all]) => [name, all.map(({ rate }) => rate)])),
      cores: cpus().length,
      quick,
    };
  } finally {
    await Promise.all(relays.map((relay) => relay.stop('SIGTERM')));
    for (const { close } of [plain, full, raw, mailbox]) await close();
  }
}
