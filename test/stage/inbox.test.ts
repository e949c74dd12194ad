import { afterAll, beforeAll, describe, expect, it, test } from 'vitest';
import * as store from '../../src/inbox/index.js';
import { migrateInbox, openInbox, record, type Inbox } from '../../src/inbox/index.js';
import { envelope } from '../support/actors/envelopes.js';
import { freshStores, type Stores } from '../support/stores.js';
import { until } from '../support/until.js';

const DAYS_14 = 1_209_600;
const LEASE_MS = 60_000;
const ERROR = { name: '$name', message: '$lease is {$set: "$$NOW"}', group: '$g' };
let stores: Stores;
let inbox: Inbox;
let count = 0;

beforeAll(async () => {
  stores = await freshStores();
  inbox = openInbox(stores.env.MONGODB_URI, 'test');
  await migrateInbox(inbox, ['receipt'], DAYS_14);
});
afterAll(async () => {
  await inbox.close();
  await stores.drop();
});

const documents = () => inbox.documents('receipt');
const find = async (messageId: string) => (await documents().findOne({ messageId }))!;
const put = async (body?: object): Promise<string> => {
  const messageId = `m-${(count += 1)}`;
  expect(await record(inbox, 'receipt', [envelope(messageId, body)], 1_000)).toEqual([{ kind: 'stored' }]);
  return messageId;
};
const claim = async (messageId: string, owner: string, generation = 1, leaseMs = LEASE_MS) =>
  (await store.claim(inbox, 'receipt', [{ messageId, generation }], owner, leaseMs))[0]!;
const claimed = async (owner = 'a'): Promise<string> => {
  const messageId = await put();
  expect(await claim(messageId, owner)).toMatchObject({ kind: 'mine' });
  return messageId;
};
/** What happens when a process is frozen for longer than its lease and another takes over. */
const takenOver = async (): Promise<string> => {
  const messageId = await put();
  expect(await claim(messageId, 'a', 1, 1)).toMatchObject({ kind: 'mine' });
  await until('the lease is over', async () => (await claim(messageId, 'b')).kind === 'mine');
  return messageId;
};

describe('record', () => {
  it('tells stored, duplicate and conflict apart within one batch, in the order of the batch', async () => {
    const [old, done, dead] = [await put(), await claimed(), await claimed()];
    await store.finish(inbox, 'receipt', [done], 'a');
    await store.fail(inbox, 'receipt', dead, 'a', ERROR, { dead: 'failed' });
    const answers = await record(
      inbox,
      'receipt',
      [
        envelope('new-1'),
        envelope(old),
        envelope(done),
        envelope(old, { other: 'body' }),
        envelope('new-1'),
        envelope('new-2'),
        envelope('new-2', { other: 'body' }),
        envelope(dead),
      ],
      1_000,
    );
    expect(answers).toEqual([
      { kind: 'stored' },
      { kind: 'duplicate', final: false, generation: 1, failures: 0 },
      { kind: 'duplicate', final: true, generation: 1, failures: 0 },
      { kind: 'conflict' },
      { kind: 'duplicate', final: false, generation: 1, failures: 0 },
      { kind: 'stored' },
      { kind: 'conflict' },
      { kind: 'duplicate', final: true, generation: 1, failures: 1 },
    ]);
    expect(await documents().countDocuments({ messageId: /^new-/ })).toBe(2);
  });

  it('keeps the bytes, and headers that mean something elsewhere', async () => {
    const bytes = Buffer.from([0, 255, 254, 36, 46]);
    const headers = Object.fromEntries([
      ['$set', 'a'],
      ['a.b', 1],
      ['__proto__', true],
    ]) as Record<string, string>;
    const hard = { ...envelope('hard', bytes), headers };
    expect(await record(inbox, 'receipt', [hard], 1_000)).toEqual([{ kind: 'stored' }]);
    const found = await find('hard');
    expect(Buffer.from(found.body!.buffer)).toEqual(bytes);
    expect(Object.entries(found.headers)).toEqual(Object.entries(headers));
  });

  it('says of a document that MongoDB cannot hold that it is too large, whatever stands beside it', async () => {
    const huge = { ...envelope('huge'), type: 'x'.repeat(16 * 1024 * 1024) };
    const answers = await record(inbox, 'receipt', [envelope('beside-1'), huge, envelope('beside-2')], 1_000);
    expect(answers).toMatchObject([{ kind: 'stored' }, { kind: 'too large' }, { kind: 'stored' }]);
    expect(await documents().countDocuments({ messageId: { $in: ['beside-1', 'huge', 'beside-2'] } })).toBe(
      2,
    );
  });

  it('says unknown for the whole batch when nobody answers', async () => {
    const nowhere = openInbox('mongodb://127.0.0.1:1/x?serverSelectionTimeoutMS=200', 'test');
    const answers = await record(nowhere, 'receipt', [envelope('x-1'), envelope('x-2')], 1_000);
    expect(answers.map(({ kind }) => kind)).toEqual(['unknown', 'unknown']);
    await nowhere.close();
  }, 15_000);
});

describe('claim', () => {
  test('of many claimers at once exactly one wins', async () => {
    const messageId = await put();
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, index) => claim(messageId, `owner-${index}`)),
    );
    expect(answers.filter(({ kind }) => kind === 'mine')).toHaveLength(1);
    expect(answers.filter(({ kind }) => kind === 'leased')).toHaveLength(7);
    expect(await find(messageId)).toMatchObject({ starts: 1, unended: 1 });
  });

  it('finds its own lease again, and counts no second start', async () => {
    const messageId = await claimed('a');
    expect(await claim(messageId, 'a')).toMatchObject({ kind: 'mine' });
    expect(await find(messageId)).toMatchObject({ starts: 1 });
  });

  it('tells how long a foreign lease or a back-off lasts', async () => {
    const messageId = await claimed('a');
    const leased = await claim(messageId, 'b');
    expect(leased).toMatchObject({ kind: 'leased', owner: 'a' });
    expect((leased as { remainingMs: number }).remainingMs).toBeGreaterThan(LEASE_MS - 10_000);
    await store.fail(inbox, 'receipt', messageId, 'a', ERROR, { retryInMs: 30_000 });
    const early = await claim(messageId, 'b');
    expect(early.kind).toBe('early');
    expect((early as { remainingMs: number }).remainingMs).toBeGreaterThan(20_000);
    expect(await find(messageId)).toMatchObject({ starts: 1, failures: 1 });
  });

  it('refuses another generation, what is final and what is not there, side by side', async () => {
    const [raised, done, free] = [await put(), await claimed(), await put()];
    await documents().updateOne({ messageId: raised }, { $set: { generation: 2 } });
    await store.finish(inbox, 'receipt', [done], 'a');
    const requests = [raised, done, free, 'nobody'].map((messageId) => ({ messageId, generation: 1 }));
    const kinds = (await store.claim(inbox, 'receipt', requests, 'b', LEASE_MS)).map(({ kind }) => kind);
    expect(kinds).toEqual(['stale', 'final', 'mine', 'absent']);
    expect(await claim(raised, 'b', 2)).toMatchObject({ kind: 'mine' });
  });
});

describe('the end of a run', () => {
  test('S-04 processedAt is absent before and a BSON date after, by the clock of the server', async () => {
    const ids = await Promise.all(Array.from({ length: 100 }, () => claimed()));
    expect(
      await documents().countDocuments({ messageId: { $in: ids }, processedAt: { $exists: true } }),
    ).toBe(0);
    expect(await store.finish(inbox, 'receipt', ids, 'a')).toEqual(ids.map(() => true));
    expect(
      await documents().countDocuments({ messageId: { $in: ids }, processedAt: { $type: 'date' } }),
    ).toBe(100);
    const one = await find(ids[0]!);
    expect(one).not.toHaveProperty('lease');
    expect(one.runs).toMatchObject([{ outcome: 'processed', by: 'a' }]);
    expect(one.unended).toBe(0);
  });

  it('drops the body where the actor does not keep it; a duplicate is known all the same', async () => {
    const messageId = await claimed();
    expect(await store.finish(inbox, 'receipt', [messageId], 'a', 'until-processed')).toEqual([true]);
    const found = await find(messageId);
    expect(found.processedAt).toBeInstanceOf(Date);
    expect(found).not.toHaveProperty('body');
    expect(await record(inbox, 'receipt', [envelope(messageId)], 1_000)).toMatchObject([
      { kind: 'duplicate', final: true },
    ]);
    expect(
      await record(inbox, 'receipt', [envelope(messageId, Buffer.from('{"other":1}'))], 1_000),
    ).toMatchObject([{ kind: 'conflict' }]);
  });

  it('is refused to whoever lost the lease, whatever it wants to write', async () => {
    const messageId = await takenOver();
    const own = await claimed('a');
    expect(await store.finish(inbox, 'receipt', [messageId, own], 'a')).toEqual([false, true]);
    expect(await store.fail(inbox, 'receipt', messageId, 'a', ERROR, { dead: 'failed' })).toBe(false);
    expect(await store.handBack(inbox, 'receipt', messageId, 'a')).toBe(false);
    expect(await store.holdsLease(inbox, 'receipt', messageId, 'a')).toBe(false);
    const step = { name: 's', key: 'k', result: 1 };
    expect(await store.rememberStep(inbox, 'receipt', messageId, 'a', step)).toBe(false);
    const found = await find(messageId);
    expect(found).toMatchObject({ failures: 0, lease: { owner: 'b' }, starts: 2 });
    expect(found).not.toHaveProperty('processedAt');
    expect(found).not.toHaveProperty('deadAt');
    expect(await store.finish(inbox, 'receipt', [messageId], 'b')).toEqual([true]);
  });

  it('is true again for the winner when its first answer was lost', async () => {
    const messageId = await claimed('a');
    expect(await store.finish(inbox, 'receipt', [messageId], 'a')).toEqual([true]);
    expect(await store.finish(inbox, 'receipt', [messageId], 'a')).toEqual([true]);
    expect(await store.finish(inbox, 'receipt', [messageId], 'b')).toEqual([false]);
  });

  it('keeps texts, steps and owners that look like expressions as they are', async () => {
    const owner = '$starts';
    const messageId = await claimed(owner);
    const step = { name: '$a', key: '$$NOW', result: { $set: '$messageId' } };
    expect(await store.rememberStep(inbox, 'receipt', messageId, owner, step)).toBe(true);
    expect(await store.fail(inbox, 'receipt', messageId, owner, ERROR, { retryInMs: 1 })).toBe(true);
    expect(await find(messageId)).toMatchObject({ lastError: ERROR, steps: [step], runs: [{ by: owner }] });
  });

  it('gives back without blame, and keeps the last ten runs', async () => {
    const messageId = await put();
    for (let run = 1; run <= 12; run += 1) {
      expect(await claim(messageId, `o-${run}`)).toMatchObject({ kind: 'mine' });
      expect(await store.handBack(inbox, 'receipt', messageId, `o-${run}`)).toBe(true);
    }
    const found = await find(messageId);
    expect(found).toMatchObject({ starts: 12, unended: 0, failures: 0 });
    expect(found.runs.map(({ by }) => by)).toEqual(
      Array.from({ length: 10 }, (_, index) => `o-${index + 3}`),
    );
  });

  it('heartbeats name the lost ones and prolong the others', async () => {
    const [mine, lost] = [await claimed('a'), await takenOver()];
    const before = (await find(mine)).lease!.until;
    expect(await store.heartbeat(inbox, 'receipt', [mine, lost], 'a', LEASE_MS * 2)).toEqual([lost]);
    expect((await find(mine)).lease!.until.getTime()).toBeGreaterThan(before.getTime() + LEASE_MS / 2);
  });
});

describe('finishWith', () => {
  const marks = () => inbox.db.collection<{ _id: string }>('marks');
  const finishWith = (messageId: string, owner: string, fail = false) =>
    store.finishWith(inbox, 'receipt', messageId, owner, async (session) => {
      await marks().updateOne({ _id: messageId }, { $inc: { count: 1 } }, { session, upsert: true });
      if (fail) throw new Error('the last write is refused');
    });

  it('writes the effect and the stamp together', async () => {
    const messageId = await claimed('a');
    await finishWith(messageId, 'a');
    expect(await marks().findOne({ _id: messageId })).toMatchObject({ count: 1 });
    expect((await find(messageId)).processedAt).toBeInstanceOf(Date);
    expect(await store.finishedBy(inbox, 'receipt', messageId, 'a')).toBe(true);
    expect(await store.finishedBy(inbox, 'receipt', messageId, 'b')).toBe(false);
  });

  it('writes nothing when the work throws', async () => {
    const messageId = await claimed('a');
    await expect(finishWith(messageId, 'a', true)).rejects.toThrow('the last write is refused');
    expect(await marks().findOne({ _id: messageId })).toBeNull();
    expect(await find(messageId)).toMatchObject({ lease: { owner: 'a' } });
    expect(await find(messageId)).not.toHaveProperty('processedAt');
  });

  it('writes nothing when the lease is lost', async () => {
    const messageId = await takenOver();
    await expect(finishWith(messageId, 'a')).rejects.toBeInstanceOf(store.LeaseLost);
    expect(await marks().findOne({ _id: messageId })).toBeNull();
  });

  it('writes once when two try at once', async () => {
    const messageId = await claimed('a');
    const tries = await Promise.allSettled([finishWith(messageId, 'a'), finishWith(messageId, 'a')]);
    expect(tries.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    expect(await marks().findOne({ _id: messageId })).toMatchObject({ count: 1 });
  });
});
