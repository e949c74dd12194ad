import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { MongoClient } from 'mongodb';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { receiveMail, type Mailbox } from '../../examples/deliveries/mailbox.js';
import { entriesOf, type Processor } from '../../src/actor/index.js';
import { inTransaction, writeEvent } from '../../src/outbox/index.js';
import { processors } from '../../src/processors/index.js';
import { killAll, startProcess, startType } from '../support/processes.js';
import { freshStores, type Stores } from '../support/stores.js';
import { until } from '../support/until.js';

const ROOT = join(import.meta.dirname, '../..');
const entries = entriesOf(processors);

describe('every actor has its file, its line in the index and its line in Procfile', () => {
  test('each file of src/processors is listed in its index', async () => {
    const files = (await readdir(join(ROOT, 'src/processors')))
      .filter((file) => file !== 'index.ts')
      .map((file) => file.replace(/\.ts$/, ''));
    expect(Object.keys(processors).sort()).toEqual(files.sort());
  });

  test.each(entries)('$name exports an actor of its own name, with an owner', async ({ name, load }) => {
    const { name: own, owner } = await load();
    expect(own).toBe(name);
    expect(owner).not.toBe('');
  });

  test.each(entries)('$name has its line in Procfile', async ({ name }) => {
    const lines = (await readFile(join(ROOT, 'Procfile'), 'utf8')).split('\n');
    expect(lines).toContain(`${name}: node dist/runner/main.js ${name}`);
  });
});

describe('every actor processes its own example, down the whole path', () => {
  let stores: Stores;
  let mailbox: Mailbox;
  let pool: pg.Pool;
  let mongo: MongoClient;

  beforeAll(async () => {
    stores = await freshStores();
    mailbox = await receiveMail({});
    const env = { ...stores.env, SMTP_URL: mailbox.url };
    const migration = startProcess(process.execPath, ['dist/cli/main.js', 'migrate'], env);
    expect(await migration.ended, migration.text.join('\n')).toBe(0);
    pool = new pg.Pool({ connectionString: stores.env.DATABASE_URL });
    mongo = new MongoClient(stores.env.MONGODB_URI);
    const running = [
      ...['relay', 'ingest', 'sweeper'].map((type) => startType(type, [], env)),
      ...entries.map(({ name }) => startType('runner', [name], env)),
    ];
    for (const one of running) await one.line('process.started');
  });
  afterAll(async () => {
    await killAll();
    await mailbox.close();
    await pool.end();
    await mongo.close();
    await stores.drop();
  });

  test.each(entries)('$name', async ({ name, load }) => {
    const processor: Processor = await load();
    // A routing key that the first pattern of the actor matches.
    const type = (processor.subscribes[0] ?? '').replaceAll('*', 'example').replaceAll('#', 'example');
    const { eventId } = await inTransaction(pool, (tx) => writeEvent(tx, { type, body: processor.example }));
    const document = await until(
      `${name} has processed its example`,
      async () => {
        const found = await mongo
          .db()
          .collection(`inbox_${name}`)
          .findOne({
            messageId: eventId,
            $or: [{ processedAt: { $type: 'date' } }, { failures: { $gt: 0 } }],
          });
        return found ?? undefined;
      },
      { ms: 30_000 },
    );
    expect(document).toMatchObject({ failures: 0, starts: 1, processedAt: expect.any(Date) as Date });
  });
});
