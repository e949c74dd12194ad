import { connect } from 'amqplib';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { openLetters, refused, type Letters } from '../support/letters.js';
import { nested, publishRaw, tableEntry } from '../support/raw-amqp.js';
import { freshStores, type Stores } from '../support/stores.js';
import { startTwinbox, twinbox, type Printed } from '../support/twinbox.js';
import { until } from '../support/until.js';

let stores: Stores;
let letters: Letters;
/** The broker and nothing else: a command on letters needs no other store. */
let env: NodeJS.ProcessEnv;
const run = (...args: string[]): Promise<Printed> => twinbox(env, 'dlq', ...args);

interface Listed {
  letter: string;
  id: string | null;
  type: string;
  reason: string;
  detail: string;
  diedAt: string | null;
  replayCount: number;
  origin: object;
  copies: number;
  headersDecodable: boolean;
}
const list = async (...args: string[]): Promise<Listed[]> =>
  (await run('list', 'a', ...args, '--json')).json() as Listed[];
const numbered = (count: number): string[] => Array.from({ length: count }, (_, index) => `m-${index}`);

beforeAll(async () => {
  stores = await freshStores();
  letters = await openLetters(stores.env.RABBITMQ_URL);
  const {
    DATABASE_URL: _,
    MONGODB_URI: __,
    REDIS_URL: ___,
    RABBITMQ_MANAGEMENT_URL: ____,
    ...rest
  } = stores.env;
  env = rest;
});
afterAll(async () => {
  await letters.close();
  await stores.drop();
});
beforeEach(() => letters.mailbox('a'));

test('list shows each letter with its reason: those of Twinbox, and those that the broker made', async () => {
  await letters.bury('a', ['conflicting'], () => refused('conflict', { 'x-replay-count': 2 }));
  await letters.bury('a', ['by-hand'], () => ({ type: 'b.done' }));
  await letters.publish('a', 'given-back');
  for (let time = 0; time <= 50; time += 1) {
    const message = await until('it is delivered', () => letters.channel.get('twinbox.a'));
    letters.channel.nack(message, false, true);
  }
  await letters.readyIs('a', 3);
  await letters.publish('a', 'too-late', { expiration: '20' });
  await letters.readyIs('a', 4);

  const listed = await list();
  expect(listed).toMatchObject([
    {
      id: 'conflicting',
      type: 'a.done',
      reason: 'conflict',
      detail: 'because of conflict',
      diedAt: '2026-03-01T12:00:00.250Z',
      replayCount: 2,
      origin: { exchange: 'twinbox.events', routingKey: 'a.done' },
      copies: 1,
    },
    { id: 'by-hand', type: 'b.done', reason: 'unknown', diedAt: null },
    {
      id: 'given-back',
      reason: 'delivery-limit',
      detail: expect.stringContaining('the delivery limit of twinbox.a') as string,
      diedAt: expect.stringMatching(/^20\d\d-.*\.000Z$/) as string,
      origin: { exchange: 'twinbox.events', routingKey: 'a.done' },
    },
    { id: 'too-late', reason: 'expired', replayCount: 0 },
  ]);
  const table = await run('list', 'a');
  expect(table.stdout).toMatch(/^LETTER +ID +TYPE +REASON +DIED +REPLAYS +ORIGIN +DETAIL\n/);
  expect(table.stdout).toMatch(/given-back +a\.done +delivery-limit +20/);
  expect(table.stderr).toBe('4 letters of 4\n');
  expect((await letters.take('a')).map(({ id }) => id)).toEqual(listed.map(({ id }) => id));
});

test('filters: id, letter, type, cause, and a time that is copied from the list', async () => {
  await letters.bury('a', ['one', 'one', 'two'], () => refused('no-id'));
  await letters.bury('a', ['three', '-5'], () => ({
    ...refused('conflict', { 'x-died-at-ms': 1_000 }),
    type: 'b.c',
  }));
  await letters.bury('a', ['timeless'], () => ({ headers: { 'x-reason': 'conflict' } }));
  const ids = async (...args: string[]): Promise<unknown[]> => (await list(...args)).map(({ id }) => id);
  expect(await ids('--id', 'one', '--id=-5')).toEqual(['one', '-5']);
  const [one] = await list('--id', 'one');
  expect(one).toMatchObject({ copies: 2 }); // shown as one
  expect(await ids('--letter', one!.letter)).toEqual(['one']);
  expect(await ids('--type', 'b.*')).toEqual(['three', '-5']);
  expect(await ids('--type', 'a.done', '--cause', 'no-id')).toEqual(['one', 'two']);
  expect(await ids('--from', one!.diedAt!, '--to', one!.diedAt!)).toEqual(['one', 'two']);
  expect(await ids('--from', '90s')).toEqual([]);
  expect(await ids('--limit', '2')).toEqual(['one', 'two']);
});

describe('100,000 letters deep', () => {
  const DEEP = 100_000;

  test('looking takes nothing away and changes no order, not even killed by -9 in the middle', async () => {
    await letters.bury('a', numbered(DEEP));
    const whole = await run('list', 'a', '--type', 'nobody');
    expect(whole.stderr).toBe(`0 letters of ${DEEP}\n`);
    expect(await letters.ready('a')).toBe(DEEP);
    expect((await list('--limit', '3')).map(({ id }) => id)).toEqual(['m-0', 'm-1', 'm-2']);

    const killed = startTwinbox(env, ['dlq', 'list', 'a', '--type', 'nobody']);
    const left = await until('it holds letters', async () => {
      const ready = await letters.ready('a');
      return ready < DEEP - 20_000 ? ready : undefined;
    }, { everyMs: 5 }); // prettier-ignore
    killed.process.kill('SIGKILL');
    await killed.ended;
    expect(killed.process.signalCode).toBe('SIGKILL');
    expect(left).toBeLessThan(DEEP);
    await letters.readyIs('a', DEEP);

    const exported = await run('export', 'a');
    expect(exported.stderr).toBe(`${DEEP} letters written\n`);
    const ids: string[] = [];
    await letters.channel.consume(
      'twinbox.a.dlq',
      (message) => ids.push(String(message?.properties.messageId)),
      {
        noAck: true,
        consumerTag: 'all',
      },
    );
    await until('all are taken', () => ids.length === DEEP, { ms: 30_000 });
    await letters.channel.cancel('all');
    expect(ids.findIndex((id, index) => id !== `m-${index}`)).toBe(-1);
  }, 120_000);
});

test('beside a consumer that holds some letters the look ends, and every letter is there afterwards', async () => {
  await letters.bury('a', numbered(300));
  const other = await connect(stores.env.RABBITMQ_URL);
  const channel = await other.createChannel();
  await channel.prefetch(7);
  let held = 0;
  await channel.consume('twinbox.a.dlq', () => (held += 1));
  await until('it holds seven', () => held === 7);
  const { code, stderr } = await run('list', 'a', '--limit', '1000');
  expect(code).toBe(0);
  expect(stderr).toBe('293 letters of 293\n');
  await other.close();
  await letters.readyIs('a', 300);
  expect((await letters.take('a')).map(({ id }) => id).sort()).toEqual(numbered(300).sort());
});

test('I-06 headers that no client library decodes, at the head: told, passed, exported, purged, never replayed', async () => {
  await letters.policy('a', { 'delivery-limit': 1 });
  await publishRaw(stores.env.RABBITMQ_URL, {
    exchange: 'twinbox.events',
    routingKey: 'a.done',
    table: tableEntry('deep', nested(9_000)),
    messageId: 'deep',
    type: 'a.done',
    body: Buffer.from('{"deep":true}'),
  });
  const faults: unknown[] = [];
  for (let time = 0; time < 2; time += 1) {
    const victim = await connect(stores.env.RABBITMQ_URL);
    const gone = new Promise((resolve) => victim.on('close', resolve));
    victim.on('error', (error: unknown) => faults.push(error));
    const channel = await victim.createChannel();
    channel.on('error', () => undefined);
    await channel.consume('twinbox.a', () => undefined);
    await gone;
  }
  expect(faults.map(String)).toEqual(Array(2).fill('RangeError: Maximum call stack size exceeded'));
  await letters.readyIs('a', 1);
  await letters.bury('a', ['good'], () => refused('conflict'));

  const table = await run('list', 'a');
  expect(table.code).toBe(0);
  expect(table.stdout).toMatch(/deep +a\.done +delivery-limit .* headers cannot be decoded/);
  const [deep] = await list();
  expect(deep).toMatchObject({ id: 'deep', headersDecodable: false, reason: 'delivery-limit', copies: 1 });
  const shown = (await run('show', 'a', 'deep', '--json')).json() as { undecodableHeaders: string };
  expect(shown).toMatchObject({ body: { content: '{"deep":true}' } });
  expect(Buffer.from(shown.undecodableHeaders, 'base64').includes(nested(9_000))).toBe(true);
  expect((await run('export', 'a')).stdout.split('\n')).toHaveLength(3);

  const replayed = await run('replay', 'a', '--all', '--yes');
  expect(replayed.code).toBe(1);
  expect(replayed.stdout).toBe('1 letter replayed\n');
  expect(replayed.stderr).toContain('its headers cannot be decoded');
  expect((await letters.arrived('a')).map(({ id }) => id)).toEqual(['good']);
  const purged = await run('purge', 'a', '--letter', deep!.letter, '--reason', 'deeper than deep', '--yes');
  expect(purged.stdout).toBe('1 letter purged\n');
  expect(await letters.ready('a')).toBe(0);
});

test('show prints a letter whole, its body bounded unless asked', async () => {
  const large = Buffer.from(JSON.stringify({ text: 'ü'.repeat(40_000) }));
  await letters.bury('a', ['text', 'text'], () => ({
    ...refused('conflict', { tenant: 't-1' }),
    correlationId: 'c',
  }));
  await letters.bury('a', [''], () => ({ ...refused('no-id'), body: Buffer.from([0xff, 0]) }));
  await letters.bury('a', ['large'], () => ({ ...refused('too-large'), body: large }));
  const page = await run('show', 'a', 'text');
  expect(page.stdout).toMatch(
    /\nproperties +\{"deliveryMode":2,"correlationId":"c","messageId":"text","type":"a.done"\}\n/,
  );
  expect(page.stdout).toMatch(/\nheaders +\{.*"tenant":"t-1".*\}\nbody +2 bytes, utf8\n\n\{\}\n$/);
  expect(page.stderr).toMatch(/^there is another: [0-9a-f]{12} \(conflict\)\n$/);
  const nameless = (await list('--cause', 'no-id'))[0]!;
  expect(nameless.id).toBeNull();
  expect((await run('show', 'a', '--letter', nameless.letter, '--json')).json()).toMatchObject({
    body: { encoding: 'base64', content: '/wA=', cut: false },
  });
  const cut = (await run('show', 'a', 'large', '--json')).json() as {
    body: { content: string; cut: boolean };
  };
  expect(cut.body.cut).toBe(true);
  expect(Buffer.byteLength(cut.body.content)).toBeLessThanOrEqual(65_536);
  expect((await run('show', 'a', 'large', '--full', '--json')).json()).toMatchObject({
    body: { bytes: large.length, cut: false, content: large.toString() },
  });
  expect(await run('show', 'a', 'nobody')).toMatchObject({ code: 1, stdout: '' });
});

test('export has all that publishing again needs', async () => {
  const headers = {
    tenant: 't',
    when: { '!': 'timestamp', value: 7 },
    list: [1, 'x'],
    bytes: Buffer.from([0xff, 0]),
  };
  const body = Buffer.from([0, 1, 0xfe]);
  await letters.bury('a', ['exp'], () => ({ headers, body, contentType: 'x/y', correlationId: 'c', priority: 3, timestamp: 5, appId: 'app' })); // prettier-ignore
  const [line = '', rest] = (await run('export', 'a')).stdout.split('\n');
  expect(rest).toBe('');
  const letter = JSON.parse(line) as {
    properties: object;
    headers: { bytes: { value: string } };
    body: string;
  };
  expect(Buffer.from(letter.body, 'base64')).toEqual(body);
  expect(letter.properties).toEqual({ contentType: 'x/y', deliveryMode: 2, priority: 3, correlationId: 'c', messageId: 'exp', timestamp: 5, type: 'a.done', appId: 'app' }); // prettier-ignore
  expect(letter.headers).toMatchObject({ ...headers, bytes: { '!': 'bytes', value: '/wA=' } });
});

test('purge removes what is meant after a preview, with a reason, and it is written down', async () => {
  await letters.bury('a', numbered(250), (id) =>
    refused(Number(id.slice(2)) % 2 === 0 ? 'conflict' : 'no-id'),
  );
  const shown = await run('purge', 'a', '--cause', 'conflict');
  expect(shown.stdout).toMatch(
    /^would purge 125 letters, died 2026-03-01T12:00:00.250Z\n {2}REASON +TYPE +LETTERS\n {2}conflict +a.done +125\n/,
  );
  expect(shown.stdout).toContain('nothing was changed; --yes does it');
  expect(await letters.ready('a')).toBe(250);
  const without = await run('purge', 'a', '--cause', 'conflict', '--yes');
  expect(without).toMatchObject({ code: 2, stdout: '' });
  const done = await run(
    'purge',
    'a',
    '--cause',
    'conflict',
    '--limit',
    '120',
    '--reason',
    'known',
    '--yes',
    '--json',
  );
  expect(done.json()).toEqual({ done: true, changed: 120, left: [] });
  const odd = numbered(250).filter((_, index) => index % 2 === 1 || index >= 240);
  expect((await letters.take('a')).map(({ id }) => id)).toEqual(odd);
  const [audit] = (await run('audit', 'a', '--json')).json() as { letters: { id: string }[] }[];
  expect(audit).toMatchObject({ command: 'dlq purge', actor: 'a', reason: 'known', filter: { cause: 'conflict' }, ended: 'complete' }); // prettier-ignore
  expect(audit!.letters).toHaveLength(120);
  expect(audit!.letters[0]).toMatchObject({ id: 'm-0', reason: 'conflict' });
});
