import { expect, test } from 'vitest';
import { reportStatus, type StatusReadings } from '../../src/cli/status-report.js';

const ALL_SLOTS = Array.from({ length: 32 }, (_, slot) => slot);
const backlog = {
  due: 0,
  retrying: 0,
  delayed: 0,
  andMore: false,
  oldestSeconds: null,
  parked: 0,
  parkedBy: [],
  publishedLastMinute: 0,
};
const well: StatusReadings = {
  outbox: { value: backlog },
  slots: { value: [{ pid: 7, name: 'relay.1', address: null, slots: ALL_SLOTS }] },
  broker: { value: { blocked: false } },
  unrouted: { value: { ready: 0, consumers: 0 } },
  actors: [
    {
      name: 'receipt',
      mailbox: { value: { ready: 3, consumers: 1 } },
      dlq: { value: { ready: 0, consumers: 0 } },
      inbox: { value: { unfinished: 2, processed: 5, dead: 0, oldestUnfinishedSeconds: 4 } },
    },
  ],
};
const actor = (over: object): StatusReadings => ({
  ...well,
  actors: [{ ...(well.actors[0] as object), ...over } as StatusReadings['actors'][number]],
});

test('a line for each hop, and nobody is needed', () => {
  const { problems, lines } = reportStatus(well);
  expect(problems).toEqual([]);
  expect(lines.map(([hop]) => hop)).toEqual([
    'outbox',
    'relays',
    'broker',
    'unrouted',
    'mailbox receipt',
    'dead letters receipt',
    'inbox receipt',
  ]);
});

test.each<[string, StatusReadings, string]>([
  [
    'parked rows',
    { ...well, outbox: { value: { ...backlog, parked: 2, parkedBy: [{ reason: 'unroutable', count: 2 }] } } },
    '2 rows parked',
  ],
  ['a late row', { ...well, outbox: { value: { ...backlog, due: 1, oldestSeconds: 301 } } }, 'a row is late'],
  ['no relay', { ...well, slots: { value: [] } }, 'no relay publishes'],
  [
    'a slot that nobody owns while rows wait',
    {
      ...well,
      outbox: { value: { ...backlog, due: 1, oldestSeconds: 31 } },
      slots: { value: [{ pid: 7, name: null, address: null, slots: ALL_SLOTS.slice(1) }] },
    },
    'nobody owns the slots 0',
  ],
  [
    'a blocked broker',
    { ...well, broker: { value: { blocked: true, reason: 'low on memory' } } },
    'the broker blocks publishers (low on memory)',
  ],
  [
    'nobody consumes',
    actor({ mailbox: { value: { ready: 3, consumers: 0 } } }),
    'nobody consumes the mailbox',
  ],
  ['a mailbox that is missing', actor({ mailbox: { value: { fault: 'missing' } } }), 'is missing'],
  [
    'unrouted messages',
    { ...well, unrouted: { value: { ready: 2, consumers: 0 } } },
    '2 messages that no actor subscribes to',
  ],
  ['dead letters', actor({ dlq: { value: { ready: 1, consumers: 0 } } }), '1 dead letter of receipt'],
  [
    'dead messages',
    actor({ inbox: { value: { unfinished: 0, processed: 0, dead: 2, oldestUnfinishedSeconds: null } } }),
    '2 dead messages of receipt',
  ],
])('%s: somebody is needed', (_, readings, problem) => {
  const { problems } = reportStatus(readings);
  expect(problems).toHaveLength(1);
  expect(problems[0]).toContain(problem);
});

test('a store that gives no answer is one problem, whatever it was asked for, and the others are shown', () => {
  const away = { fault: 'RabbitMQ gives no answer (…)' };
  const { problems, lines } = reportStatus({ ...actor({ mailbox: away, dlq: away }), broker: away });
  expect(problems).toEqual([away.fault]);
  expect(lines.find(([hop]) => hop === 'inbox receipt')?.[1]).toContain('2 unfinished');
});
