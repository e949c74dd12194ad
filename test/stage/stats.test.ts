import { MongoClient, type ClientSession, type Db } from 'mongodb';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { loadPayloads } from '../../examples/deliveries/payloads.js';
import { readDelivery } from '../../examples/deliveries/delivery.js';
import type { EffectContext } from '../../src/actor/index.js';
import { stats } from '../../src/processors/stats.js';

let client: MongoClient;
let db: Db;

beforeAll(async () => {
  client = new MongoClient(process.env.MONGODB_URI!);
  db = client.db(`stats_${process.pid}_${Date.now().toString(36)}`);
  await client.connect();
});

afterAll(async () => {
  await db.dropDatabase();
  await client.close();
});

/** One run whose final transaction is committed, or fails at the end when `fail` is given. */
function run(event: object, fail?: Error): Promise<void> {
  const context = {
    commit: (work: (session: ClientSession, db: Db) => Promise<void>) =>
      client.withSession((session) =>
        session.withTransaction(async () => {
          await work(session, db);
          if (fail !== undefined) throw fail;
        }),
      ),
  };
  return stats.effect(stats.schema.parse(event), context as unknown as EffectContext<unknown>);
}

const documents = () =>
  db.collection<{ _id: string; deliveries: number }>('stats_repository').find().toArray();

it('counts every delivery once, several at a time, from an empty database', async () => {
  const events = loadPayloads().map(({ event, body }, index) =>
    readDelivery(`d-${index}`, event, body.toString()),
  );
  const left = events.map(({ event, repository }) => ({ event, repository }));
  const worker = async () => {
    for (let next = left.pop(); next !== undefined; next = left.pop()) await run(next);
  };
  await Promise.all(Array.from({ length: stats.concurrency }, worker));

  const found = (await documents()) as { _id: string; deliveries: number; events: Record<string, number> }[];
  expect(found.reduce((sum, { deliveries }) => sum + deliveries, 0)).toBe(329);
  expect(found.find(({ _id }) => _id === '(none)')?.deliveries).toBe(49);
  for (const { deliveries, events } of found)
    expect(Object.values(events).reduce((sum, one) => sum + one, 0)).toBe(deliveries);
});

it('counts nothing when the transaction does not commit', async () => {
  const before = await documents();
  await expect(run({ event: 'push', repository: 'octo/never' }, new Error('not today'))).rejects.toThrow(
    'not today',
  );
  expect(await documents()).toEqual(before);
});

it('takes names that mean something to MongoDB for names', async () => {
  await run({ event: 'a.b$c', repository: '$octo.x/y' });
  await run({ event: '__proto__', repository: '$octo.x/y' });
  const found = await db
    .collection<{ _id: string }>('stats_repository')
    .findOne({ _id: '$octo.x/y' }, { raw: false });
  expect(JSON.stringify(found)).toBe('{"_id":"$octo.x/y","deliveries":2,"events":{"a_b_c":1,"__proto__":1}}');
});
