import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { defineProcessor } from '../../src/actor/index.js';
import { claim, finish, record, type ClaimRequest } from '../../src/inbox/index.js';
import { jobId } from '../../src/queue/index.js';
import { keepLeases, type Leases } from '../../src/runner/leases.js';
import { createRunner } from '../../src/runner/run.js';
import { gather } from '../../src/runtime/gather.js';
import { noProbe } from '../../src/runtime/probe.js';
import { LOG, openBench, type Bench } from '../support/actors/bench.js';
import { envelope } from '../support/actors/envelopes.js';
import { until } from '../support/until.js';

const ACTOR = 'receipt';
let bench: Bench;
beforeAll(async () => {
  bench = await openBench();
});
afterAll(() => bench.close());

const leasesOf = (owner: string, leaseMs: number, signal: AbortSignal): Leases =>
  keepLeases({ inbox: bench.inbox, actor: ACTOR, owner, leaseMs, log: LOG }, signal);

test('a heartbeat takes no run for lost whose claim is not answered yet, and does tell one that is', async () => {
  const end = new AbortController();
  const leases = leasesOf('me', 300, end.signal);
  await record(
    bench.inbox,
    ACTOR,
    ['claiming', 'lost', 'kept'].map((id) => envelope(id)),
    60_000,
  );
  await claim(bench.inbox, ACTOR, [{ messageId: 'kept', generation: 1 }], 'me', 300);
  await claim(bench.inbox, ACTOR, [{ messageId: 'lost', generation: 1 }], 'another', 60_000);
  const [claiming, lost, kept] = ['claiming', 'lost', 'kept'].map((id) => leases.begin(id));
  lost!.leased = true;
  kept!.leased = true;
  const before = (await bench.document('kept'))?.lease?.until.getTime() ?? 0;
  await until('the lost one is told', () => lost!.over.signal.aborted);
  // Several beats long: the kept one's lease was prolonged past its first end again and again.
  await until(
    'three leases have passed',
    async () => ((await bench.document('kept'))?.lease?.until.getTime() ?? 0) > before + 900,
  );
  expect(claiming!.over.signal.aborted).toBe(false);
  expect(kept!.over.signal.aborted).toBe(false);
  end.abort();
});

test('a message whose claim was under way when the process began to stop is handed back, its effect not begun', async () => {
  let effects = 0;
  const leases = leasesOf('stopping', 60_000, AbortSignal.abort());
  let answer: () => void = () => undefined;
  const mayAnswer = new Promise<void>((resolve) => (answer = resolve));
  const run = createRunner({
    processor: defineProcessor({
      name: ACTOR,
      owner: 'tests',
      subscribes: ['order.placed'],
      schema: z.looseObject({}),
      example: {},
      attempts: 2,
      backoff: { firstMs: 10, capMs: 10 },
      concurrency: 1,
      timeoutMs: 10_000,
      effect: async () => {
        effects += 1;
      },
    }),
    resources: undefined,
    inbox: bench.inbox,
    owner: 'stopping',
    leaseMs: 60_000,
    leases,
    claims: gather(
      async (requests: ClaimRequest[]) => {
        const claims = await claim(bench.inbox, ACTOR, requests, 'stopping', 60_000);
        await mayAnswer;
        return claims;
      },
      { maxItems: 10 },
    ),
    finishes: gather<string, boolean>((ids) => finish(bench.inbox, ACTOR, ids, 'stopping'), { maxItems: 10 }),
    maxBodyBytes: 1_000_000,
    log: LOG,
    probe: noProbe,
    random: Math.random,
    fail: (error) => expect.unreachable(error.message),
  });
  await record(bench.inbox, ACTOR, [envelope('stop')], 60_000);
  const ended = run({ messageId: 'stop', generation: 1, jobId: jobId('stop', 1) });
  await until('it is claimed', async () => (await bench.document('stop'))?.lease?.owner === 'stopping');
  leases.endAll('shutdown');
  answer();
  expect(await ended).toEqual({ kind: 'hand back' });
  expect(effects).toBe(0);
  expect(await bench.document('stop')).toMatchObject({ starts: 1, unended: 0, failures: 0 });
  expect((await bench.document('stop'))?.lease).toBeUndefined();
  expect(leases.running).toBe(0);
});
