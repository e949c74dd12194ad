import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { openBench, type Bench } from '../support/actors/bench.js';
import { GOOD_BODY } from '../support/actors/envelopes.js';
import { openLetters, refused, type Letters } from '../support/letters.js';
import { killAll, startProcess } from '../support/processes.js';
import { publishRaw } from '../support/raw-amqp.js';
import { startTwinbox, twinbox, type Printed } from '../support/twinbox.js';
import { until } from '../support/until.js';

let bench: Bench;
let letters: Letters;
const run = (...args: string[]): Promise<Printed> => twinbox(bench.env, 'dlq', ...args);
const numbered = (count: number): string[] => Array.from({ length: count }, (_, index) => `m-${index}`);
interface Listed {
  id: string;
  reason: string;
  replayCount: number;
}
const list = async (actor = 'receipt'): Promise<Listed[]> =>
  (await run('list', actor, '--json')).json() as Listed[];

beforeAll(async () => {
  bench = await openBench();
  letters = await openLetters(bench.env.RABBITMQ_URL);
});
beforeEach(() => letters.mailbox('a'));
afterEach(async () => {
  await killAll();
  await bench.purge();
});
afterAll(async () => {
  await letters.close();
  await bench.close();
});

test('a replayed message is the one that it was: id, properties, headers, origin; and says that it was replayed', async () => {
  await letters.bury('a', ['whole'], () => ({
    ...refused('failed', {
      tenant: 't-1',
      'x-key': 'k',
      'x-attempt': 5,
      'x-death': [{ reason: 'expired', queue: 'q', count: 4, exchange: 'e', 'routing-keys': ['k'] }],
      'x-first-death-reason': 'expired',
    }),
    contentType: 'application/json',
    correlationId: 'c-1',
    timestamp: 1_700_000_000,
    body: Buffer.from('{"n":1}'),
  }));
  await letters.publish('a', 'too-late', { expiration: '20', headers: { tenant: 't-2' } });
  await letters.readyIs('a', 2);
  const shown = await run('replay', 'a', '--all');
  expect(shown.stdout).toMatch(/^would replay 2 letters, died .*\nnothing was changed; --yes does it\n$/s);
  expect(await letters.ready('a')).toBe(2);

  expect(await run('replay', 'a', '--all', '--reason', 'mended', '--yes')).toMatchObject({
    code: 0,
    stdout: '2 letters replayed\n',
  });
  expect(await letters.ready('a')).toBe(0);
  const [first, second] = await letters.arrived('a');
  expect(first).toMatchObject({
    id: 'whole',
    body: '{"n":1}',
    properties: { type: 'a.done', contentType: 'application/json', correlationId: 'c-1', timestamp: 1_700_000_000, deliveryMode: 2 }, // prettier-ignore
  });
  expect(first!.properties.headers).toEqual({
    tenant: 't-1',
    'x-key': 'k',
    'x-original-exchange': 'twinbox.events',
    'x-original-routing-key': 'a.done',
    'x-replayed-from': 'twinbox.a.dlq',
    'x-replay-count': 1,
    'x-delivery-count': 0, // the broker's own, of the mailbox
  });
  expect(second).toMatchObject({ id: 'too-late', properties: { expiration: undefined } });
  expect(second!.properties.headers).toMatchObject({ tenant: 't-2', 'x-original-routing-key': 'a.done', 'x-replay-count': 1 }); // prettier-ignore
  const [audit] = (await run('audit', 'a', '--json')).json() as object[];
  expect(audit).toMatchObject({
    command: 'dlq replay',
    reason: 'mended',
    who: expect.stringContaining('@') as string,
    letters: [
      { id: 'whole', reason: 'failed' },
      { id: 'too-late', reason: 'expired' },
    ],
    ended: 'complete',
  });
});

test('a replayed letter that fails again comes back, counted, and is not replayed twice by one command', async () => {
  const ingest = bench.start('ingest');
  await ingest.line('process.started');
  await bench.publish('twice', GOOD_BODY);
  await bench.publish('twice', { ...GOOD_BODY, totalCents: 2 });
  for (let count = 0; count <= 2; count += 1) {
    await letters.readyIs('receipt', 1);
    expect(await list()).toMatchObject([{ id: 'twice', reason: 'conflict', replayCount: count }]);
    expect((await run('replay', 'receipt', '--id', 'twice', '--yes')).stdout).toBe('1 letter replayed\n');
    await until(
      'ingest has refused it again',
      () =>
        ingest.lines.filter(({ event, actor }) => event === 'ingest.dead-letter' && actor === 'receipt')
          .length ===
        count + 2,
    );
  }
  expect(await bench.documents.countDocuments({ messageId: 'twice' })).toBe(1);
  // What comes back while a slow command runs stands in its way, and is left alone.
  await letters.bury('receipt', numbered(65), () => ({ ...refused('no-id'), messageId: '' }));
  const slow = await run('replay', 'receipt', '--all', '--rate', '10', '--yes');
  expect(slow.stdout).toBe('66 letters replayed\n');
  await letters.readyIs('receipt', 66);
}, 60_000);

test('replay.moved: killed between publish and ack, the message is there twice, once for the inbox, and never lost', async () => {
  await letters.bury('receipt', ['moved', 'other'], (id) => ({
    ...refused('no-id', { 'x-original-routing-key': 'order.placed', 'x-shop': id }),
    type: 'order.placed',
    body: Buffer.from(JSON.stringify(GOOD_BODY)),
  }));
  const args = ['replay', 'receipt', '--id', 'moved', '--yes'];
  const killed = startProcess(
    process.execPath,
    ['--import', 'tsx', 'test/support/probed-dlq.ts', 'replay.moved', ...args],
    bench.env,
  );
  expect(await killed.ended).toBe('SIGKILL');
  await letters.readyIs('receipt', 2);
  expect((await bench.mailbox()).ready).toBe(1);
  expect(await list()).toMatchObject([{ id: 'moved' }, { id: 'other' }]);

  expect(await run(...args)).toMatchObject({ code: 0, stdout: '1 letter replayed\n' });
  expect((await bench.mailbox()).ready).toBe(2);
  await bench.start('ingest').line('process.started');
  await until('both are taken', async () => (await bench.mailbox()).ready === 0);
  const document = await until('it is recorded', () =>
    bench.document('moved').then((found) => found ?? undefined),
  );
  expect(document.source).toMatchObject({ exchange: 'twinbox.events', routingKey: 'order.placed' });
  expect(document.headers).toEqual({ 'x-shop': 'moved' });
  expect(await bench.documents.countDocuments({ messageId: 'moved' })).toBe(1);
  expect(await list()).toMatchObject([{ id: 'other', replayCount: 0 }]);
  const audit = (await run('audit', 'receipt', '--json')).json() as { ended?: string; letters: object[] }[];
  expect(audit.slice(0, 2)).toMatchObject([
    { ended: 'complete', letters: [{ id: 'moved' }] },
    { letters: [] },
  ]);
  expect(audit[1]).not.toHaveProperty('ended');
}, 60_000);

test('I-10 a message whose ingest died again and again: its letter, replayed, counts as a duplicate and is gone', async () => {
  await letters.policy('receipt', { 'delivery-limit': 2 }); // three kills instead of 51
  await bench.publish('i10');
  for (let time = 0; time < 3; time += 1) {
    // A duplicate is not stored again: each must record it to die of it.
    await bench.documents.deleteMany({ messageId: 'i10' });
    const probed = bench.startProbed('ingest', 'ingest.stored', {
      TWINBOX_PROCESSORS: 'test/support/actors/receipt-alone.ts',
    });
    expect(await probed.ended).toBe('SIGKILL');
  }
  await letters.readyIs('receipt', 1);
  expect(await bench.document('i10')).not.toBeNull();
  expect(await list()).toMatchObject([{ id: 'i10', reason: 'delivery-limit', replayCount: 0 }]);
  await bench.start('ingest').line('process.started');
  expect((await run('replay', 'receipt', '--cause', 'delivery-limit', '--yes')).code).toBe(0);
  await until('it is taken', async () => (await bench.mailbox()).ready === 0);
  await until('its job', async () => (await bench.queues.sight('receipt', 'i10', 1)) === 'waiting');
  expect(await bench.documents.countDocuments({ messageId: 'i10' })).toBe(1);
  expect(await list()).toEqual([]);
}, 60_000);

describe('several at once', () => {
  test('two operators who replay the same letters move each once', async () => {
    await letters.bury('a', numbered(300), () => refused('failed'));
    const both = await Promise.all([1, 2].map(() => run('replay', 'a', '--all', '--yes', '--json')));
    const changed = both.map((one) => (one.json() as { changed: number }).changed);
    expect(changed[0]! + changed[1]!).toBe(300);
    expect(both.map(({ code }) => code)).toEqual([0, 0]);
    expect((await letters.arrived('a')).map(({ id }) => id).sort()).toEqual(numbered(300).sort());
    expect(await letters.ready('a')).toBe(0);
  });

  test('a slow replay lets others look in between, keeps its pace, and an interrupt leaves the rest in order', async () => {
    await letters.bury('a', numbered(200), () => refused('failed'));
    const began = performance.now();
    const slow = startTwinbox(bench.env, ['dlq', 'replay', 'a', '--all', '--rate', '10', '--yes']);
    await until('it has begun', async () => (await letters.channel.checkQueue('twinbox.a')).messageCount > 0);
    const listed = await run('list', 'a', '--limit', '1000', '--json');
    expect(listed.code).toBe(0);
    const seen = listed.json() as Listed[];
    expect(seen.length).toBeLessThan(200);
    expect(seen.length).toBeGreaterThan(0);
    slow.process.kill('SIGINT');
    const { code, stderr, stdout } = await slow.ended;
    const seconds = (performance.now() - began) / 1_000;
    const moved = Number(/^(\d+) letters replayed\n$/.exec(stdout)?.[1]);
    expect(code).toBe(1);
    expect(stderr).toContain('interrupted; the same command does the rest');
    expect(moved).toBeLessThanOrEqual(10 * seconds + 1);
    expect((await letters.arrived('a')).map(({ id }) => id)).toEqual(numbered(200).slice(0, moved));
    expect((await letters.take('a')).map(({ id }) => id)).toEqual(numbered(200).slice(moved));
  }, 60_000);
});

test('what cannot be replayed stays, and is told: headers too large to send, a full mailbox, no mailbox', async () => {
  const value = Buffer.alloc(70_000, 'x');
  const length = Buffer.alloc(4);
  length.writeUInt32BE(value.length);
  await publishRaw(bench.env.RABBITMQ_URL, {
    exchange: 'twinbox.dlx',
    routingKey: 'twinbox.a',
    table: Buffer.concat([Buffer.from('\u0003bigS', 'latin1'), length, value]),
    messageId: 'big',
    type: 'a.done',
    body: Buffer.from('{}'),
  });
  const big = await run('replay', 'a', '--all', '--yes', '--json');
  expect(big.code).toBe(1);
  expect(big.json()).toMatchObject({ done: false, changed: 0, left: [{ id: 'big' }] });
  expect((await letters.take('a')).map(({ id }) => id)).toEqual(['big']);

  await letters.bury('a', numbered(20), () => refused('failed'));
  await letters.policy('a', { 'max-length': 2 });
  const full = await run('replay', 'a', '--all', '--rate', '10', '--yes', '--json');
  expect(full.code).toBe(1);
  const { changed, stopped } = full.json() as { changed: number; stopped: string };
  expect(stopped).toContain('does not take messages for twinbox.a');
  const arrived = (await letters.arrived('a')).map(({ id }) => id);
  expect(arrived).toEqual(numbered(20).slice(0, changed));
  expect(changed).toBeGreaterThan(0);
  expect(await letters.ready('a')).toBe(20 - changed);

  await letters.channel.deleteQueue('twinbox.a');
  const gone = await run('replay', 'a', '--all', '--yes', '--json');
  expect(gone.code).toBe(1);
  expect(gone.json()).toMatchObject({ done: false, changed: 0, stopped: expect.stringContaining('twinbox topology apply') as string }); // prettier-ignore
  expect((await letters.take('a')).map(({ id }) => id)).toEqual(numbered(20).slice(changed));
  expect(await run('replay', 'a', '--id', 'nobody', '--yes')).toMatchObject({
    code: 1,
    stdout: '0 letters replayed\n',
  });
});
