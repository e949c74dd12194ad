import { describe, expect, it } from 'vitest';
import type { DueDocument } from '../../src/inbox/index.js';
import type { JobSight } from '../../src/queue/index.js';
import { decide } from '../../src/sweeper/decide.js';

const NOW = new Date('2026-01-01T00:00:00Z');
const at = (ms: number) => new Date(NOW.getTime() + ms);
const POLICY = { minAgeMs: 30_000, maxLookMs: 600_000, leaseMs: 60_000 };
const FRESH: DueDocument = { messageId: 'm', generation: 1, starts: 0, failures: 0, receivedAt: at(-40_000) };
const SIGHTS: JobSight[] = ['absent', 'orphan', 'waiting', 'delayed', 'active', 'completed', 'failed'];
const decideOn = (part: Partial<DueDocument>, job: JobSight, attempts: number | undefined = 8) =>
  decide({ ...FRESH, ...part }, job, attempts, NOW, POLICY);
const lease = (leftMs: number) => ({ owner: 'x', since: at(-1), until: at(leftMs) });

describe('whatever the job is', () => {
  it.each(SIGHTS)('%s: a live lease is left alone until it ends', (job) => {
    expect(decideOn({ lease: lease(5_000), failures: 99 }, job)).toEqual({ kind: 'leave', lookInMs: 5_000 });
  });
  it.each(SIGHTS)('%s: attempts that are used up bury it', (job) => {
    expect(decideOn({ failures: 8 }, job)).toEqual({ kind: 'bury' });
  });
  it.each(SIGHTS)('%s: an actor that cannot be loaded decides nothing', (job) => {
    expect(decide({ ...FRESH, failures: 99 }, job, undefined, NOW, POLICY)).toEqual({
      kind: 'leave',
      lookInMs: 30_000,
    });
  });
});

it('adds what is absent, with the delay that remains', () => {
  expect(decideOn({}, 'absent')).toEqual({ kind: 'add', delayMs: 0 });
  expect(decideOn({ failures: 3, nextAttemptAt: at(7_000) }, 'absent')).toEqual({
    kind: 'add',
    delayMs: 7_000,
  });
  expect(decideOn({ nextAttemptAt: at(-7_000) }, 'absent')).toEqual({ kind: 'add', delayMs: 0 });
});

it('replaces an orphan', () => {
  expect(decideOn({}, 'orphan')).toEqual({ kind: 'replace orphan', delayMs: 0 });
});

it('leaves what waits, and looks at an honest backlog ever more rarely', () => {
  const lookAfter = (ageMs: number) => decideOn({ receivedAt: at(-ageMs) }, 'waiting');
  expect(lookAfter(1_000)).toEqual({ kind: 'leave', lookInMs: 30_000 });
  expect(lookAfter(90_000)).toEqual({ kind: 'leave', lookInMs: 90_000 });
  expect(lookAfter(9_000_000)).toEqual({ kind: 'leave', lookInMs: 600_000 });
  expect(decideOn({ nextAttemptAt: at(900_000) }, 'delayed')).toEqual({ kind: 'leave', lookInMs: 900_000 });
});

it('gives an active job two leases without a live one before it takes the message from it', () => {
  expect(decideOn({}, 'active')).toEqual({ kind: 'leave', lookInMs: 60_000 });
  expect(decideOn({ lease: lease(-1) }, 'active')).toEqual({ kind: 'leave', lookInMs: 60_000 });
  expect(decideOn({ lease: lease(-120_001) }, 'active')).toMatchObject({
    kind: 'next generation',
    was: 'active',
  });
});

it.each<JobSight>(['completed', 'failed'])('goes past a %s job that blocks the id', (job) => {
  expect(decideOn({ failures: 2 }, job)).toEqual({ kind: 'next generation', delayMs: 0, was: job });
});
