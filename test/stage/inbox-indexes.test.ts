import { afterAll, beforeAll, describe, expect, it, test } from 'vitest';
import * as store from '../../src/inbox/index.js';
import { migrateInbox, openInbox, type Inbox } from '../../src/inbox/index.js';
import { freshStores, type Stores } from '../support/stores.js';

const DAYS_14 = 1_209_600;
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

describe('indexes', () => {
  it('are those of the design, and a second migration finds nothing to do', async () => {
    const listed = (await documents().listIndexes().toArray()) as Record<string, unknown>[];
    const byName = new Map(listed.map((index) => [index.name, index]));
    expect(byName.get('messageId')).toMatchObject({ key: { messageId: 1 }, unique: true });
    expect(byName.get('processedAt')).toMatchObject({ key: { processedAt: 1 }, expireAfterSeconds: DAYS_14 });
    expect(byName.get('lookAt')).toMatchObject({
      key: { lookAt: 1 },
      partialFilterExpression: { processedAt: null, deadAt: null },
    });
    expect(await migrateInbox(inbox, ['receipt'], DAYS_14)).toEqual([]);
    await store.checkInbox(inbox, ['receipt'], DAYS_14);
  });

  it('serve the sweeper: what is due is found by the partial index', async () => {
    const due = { processedAt: null, deadAt: null, lookAt: { $lte: new Date() } };
    const plan = JSON.stringify(
      await documents()
        .find(due as never)
        .sort({ lookAt: 1 })
        .explain('queryPlanner'),
    );
    expect(plan).toContain('"IXSCAN"');
    expect(plan).toContain('"indexName":"lookAt"');
    expect(plan).not.toContain('"COLLSCAN"');
  });

  test('S-05 another retention is refused until `twinbox migrate` changed it, both ways', async () => {
    const expiry = async () =>
      ((await documents().listIndexes().toArray()) as { name: string; expireAfterSeconds?: number }[]).find(
        ({ name }) => name === 'processedAt',
      )?.expireAfterSeconds;
    for (const [before, after] of [
      [DAYS_14, 604_800],
      [604_800, DAYS_14],
    ] as const) {
      const refusal = await store
        .checkInbox(inbox, ['receipt'], after)
        .catch((error: unknown) => error as Error);
      expect(refusal).toMatchObject({ name: 'ConfigurationError' });
      for (const part of [String(before), String(after), '`twinbox migrate`'])
        expect((refusal as Error).message).toContain(part);
      expect(await expiry()).toBe(before);
      await migrateInbox(inbox, ['receipt'], after);
      expect(await expiry()).toBe(after);
      await store.checkInbox(inbox, ['receipt'], after);
    }
  });

  it.each([
    ['compound', { processedAt: 1, deadAt: 1 } as const, { name: 'processedAt' }],
    ['without expiry', { processedAt: 1 } as const, { name: 'processedAt' }],
    ['of another name', { processedAt: 1 } as const, { name: 'mine', expireAfterSeconds: DAYS_14 }],
  ])('that stand in the place of the expiring one are refused: %s', async (_what, keys, options) => {
    const actor = `odd-${(count += 1)}`;
    await inbox.documents(actor).createIndex(keys, options, {});
    await expect(migrateInbox(inbox, [actor], DAYS_14)).rejects.toThrow(
      /drop it, then run `twinbox migrate`/,
    );
  });

  it('that are missing are named', async () => {
    await expect(store.checkInbox(inbox, ['nobody'], DAYS_14)).rejects.toThrow(
      /inbox_nobody lacks the indexes messageId, lookAt.*no retention yet.*twinbox migrate/,
    );
  });
});
