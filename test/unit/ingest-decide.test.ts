import { expect, it } from 'vitest';
import { decide } from '../../src/ingest/decide.js';

it('acks what is stored, and makes its first job', () => {
  expect(decide({ kind: 'stored' })).toEqual({ kind: 'ack', enqueue: { generation: 1, failures: 0 } });
});

it('takes a duplicate for recorded, not for done: unfinished, it is enqueued where it stands', () => {
  expect(decide({ kind: 'duplicate', final: false, generation: 3, failures: 2 })).toEqual({
    kind: 'ack',
    enqueue: { generation: 3, failures: 2 },
  });
});

it('acks a duplicate of a finished message, and makes no job', () => {
  expect(decide({ kind: 'duplicate', final: true, generation: 1, failures: 0 })).toEqual({ kind: 'ack' });
});

it('dead-letters a conflict', () => {
  expect(decide({ kind: 'conflict' })).toMatchObject({
    kind: 'dead-letter',
    refusal: { reason: 'conflict' },
  });
});

it('never acks what is unknown', () => {
  const error = new Error('no answer');
  expect(decide({ kind: 'unknown', error })).toEqual({ kind: 'give back', error });
});
