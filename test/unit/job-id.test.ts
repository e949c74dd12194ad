import { expect, it } from 'vitest';
import { generationOf, jobId } from '../../src/queue/index.js';
import { STRANGE_IDS } from '../support/actors/envelopes.js';

it('hashes the id, and carries the generation from the second on', () => {
  const first = jobId('dup-1', 1);
  expect(first).toBe('m-d68bcc1bd52b45d51249bb370fe082c53ab46f0526adb165b1a2ea00701a709b');
  expect(jobId('dup-1', 2)).toBe(`${first}.2`);
  expect([1, 2, 17].map((generation) => generationOf(jobId('a.9', generation)))).toEqual([1, 2, 17]);
});

it('I-03 gives every strange id a job id of its own that the queue takes', () => {
  const ids = STRANGE_IDS.map((id) => jobId(id, 1));
  expect(new Set(ids).size).toBe(STRANGE_IDS.length);
  for (const id of ids) expect(id).toMatch(/^m-[0-9a-f]{64}$/);
});
