import { expect, test } from 'vitest';
import { planOf, topologyOf, type Seen, type Topology } from '../../src/broker/index.js';
import { seenOf } from '../../src/broker/management.js';

const want = topologyOf([{ name: 'notify', subscribes: ['github.issues.*'] }]);
const fixed = { durable: true, auto_delete: false };

/** The live broker, exactly as described; the parts can be changed. */
function live(topology: Topology): Parameters<typeof seenOf> extends [unknown, ...infer Rest] ? Rest : never {
  return [
    topology.exchanges.map(({ name, type, arguments: args }) => ({
      name,
      type,
      ...fixed,
      arguments: { ...args },
    })),
    topology.queues.map(({ name, arguments: args }) => ({ name, ...fixed, arguments: { ...args } })),
    topology.bindings.map(({ exchange, queue, pattern }) => ({
      source: exchange,
      destination: queue,
      destination_type: 'queue',
      routing_key: pattern,
      arguments: {},
    })),
  ];
}

const kinds = (seen: Seen): string[] => planOf(want, seen).differences.map(({ kind }) => kind);

test('a mailbox hangs on both exchanges with the same patterns; only twinbox.in has an alternate exchange', () => {
  expect(want.bindings.filter(({ queue }) => queue === 'twinbox.notify')).toEqual([
    { exchange: 'twinbox.events', queue: 'twinbox.notify', pattern: 'github.issues.*' },
    { exchange: 'twinbox.in', queue: 'twinbox.notify', pattern: 'github.issues.*' },
  ]);
  const alternates = want.exchanges.map(({ name, arguments: args }) => [name, args['alternate-exchange']]);
  expect(Object.fromEntries(alternates)).toMatchObject({
    'twinbox.events': undefined,
    'twinbox.in': 'twinbox.in.unrouted',
  });
  expect(want.queues.map(({ name, arguments: args }) => [name, args['x-queue-type']])).toEqual([
    ['twinbox.in.unrouted', 'quorum'],
    ['twinbox.letters.audit', 'quorum'],
    ['twinbox.notify.dlq', 'quorum'],
    ['twinbox.notify', 'quorum'],
  ]);
});

test('an empty broker lacks everything; one as described lacks nothing', () => {
  const nothing: Seen = { through: 'management', exchanges: new Map(), queues: new Map(), bindings: [] };
  expect(kinds(nothing)).toHaveLength(want.exchanges.length + want.queues.length + want.bindings.length);
  expect(planOf(want, seenOf(want, ...live(want)))).toEqual({ differences: [], notes: [] });
});

test('every argument that differs is named, with what is there and what must be', () => {
  const [exchanges, queues, bindings] = live(want);
  const changed = queues.map((queue) =>
    queue.name === 'twinbox.notify'
      ? { ...queue, arguments: { 'x-queue-type': 'classic', 'x-message-ttl': 5_000 } }
      : queue,
  );
  const { differences } = planOf(want, seenOf(want, exchanges, changed, bindings));
  expect(differences).toContainEqual({
    kind: 'queue-differs',
    queue: 'twinbox.notify',
    argument: 'x-message-ttl',
    have: '5000',
    want: undefined,
  });
  expect(differences).toContainEqual({
    kind: 'queue-differs',
    queue: 'twinbox.notify',
    argument: 'x-queue-type',
    have: 'classic',
    want: 'quorum',
  });
  const fanout = exchanges.map((one) => (one.name === 'twinbox.events' ? { ...one, type: 'fanout' } : one));
  expect(planOf(want, seenOf(want, fanout, queues, bindings)).differences).toEqual([
    { kind: 'exchange-differs', exchange: 'twinbox.events', argument: 'type', have: 'fanout', want: 'topic' },
  ]);
});

test('an old binding and an old mailbox are told; what is not of our making is noted and left', () => {
  const [exchanges, queues, bindings] = live(want);
  const binding = (source: string, destination: string, routing_key: string) => ({
    source,
    destination,
    destination_type: 'queue',
    routing_key,
    arguments: {},
  });
  const gone = live(topologyOf([{ name: 'gone', subscribes: ['x'] }]))[1].filter(({ name }) =>
    name.startsWith('twinbox.gone'),
  );
  const seen = seenOf(
    want,
    exchanges,
    [
      ...queues,
      ...gone,
      { name: 'twinbox.of-others', ...fixed, arguments: {} },
      { name: 'twinbox.notify.migrating', ...fixed, arguments: {}, messages: 7 },
    ],
    [
      ...bindings,
      binding('twinbox.events', 'twinbox.notify', 'old.*'),
      binding('legacy', 'twinbox.notify', 'orders'),
      binding('twinbox.events', 'of-others', 'old.*'),
    ],
  );
  const plan = planOf(want, seen);
  expect(plan.differences).toMatchObject([
    { kind: 'migration-unfinished', queue: 'twinbox.notify', messages: 7 },
    { kind: 'binding-old', binding: { exchange: 'twinbox.events', pattern: 'old.*' } },
    { kind: 'queue-old', queue: 'twinbox.gone' },
    { kind: 'queue-old', queue: 'twinbox.gone.dlq' },
  ]);
  expect(plan.notes).toEqual([
    expect.stringContaining("twinbox.notify is bound to legacy with 'orders' too"),
  ]);
});

test('without the management API bindings are not judged, and the plan says so', () => {
  const seen = { ...seenOf(want, ...live(want)), through: 'declares' as const, bindings: undefined };
  const plan = planOf(want, seen);
  expect(plan.differences).toEqual([]);
  expect(plan.notes).toEqual([expect.stringContaining('RABBITMQ_MANAGEMENT_URL')]);
});

test('of an actor that cannot be loaded the queues are declared, and no binding is called old', () => {
  const unloadable = topologyOf([{ name: 'notify' }]);
  const plan = planOf(unloadable, seenOf(unloadable, ...live(want)));
  expect(plan.differences).toEqual([]);
  expect(plan.notes).toEqual([expect.stringContaining('cannot be loaded')]);
});
