import { Readable } from 'node:stream';
import { expect, test } from 'vitest';
import { format } from '../../src/cli/format.js';
import { inputsOf } from '../support/inputs.js';

async function detect(
  input: unknown,
  ...argv: string[]
): Promise<{ code: number; out: string; err: string }> {
  let [out, err] = ['', ''];
  const code = await format(
    {
      argv: ['detect', ...argv],
      env: {},
      stdout: { write: (text) => (out += text) },
      stderr: { write: (text) => (err += text) },
    },
    Readable.from([typeof input === 'string' ? input : JSON.stringify(input)]),
  );
  return { code, out, err };
}

test('says the format, why, the id and where it was found, and the type', async () => {
  const entry = inputsOf('producer-formats').find(({ case: name }) => name === 'MassTransit envelope')?.entry;
  expect((await detect(entry)).out).toBe(
    [
      'format   masstransit (content_type application/vnd.masstransit+json)',
      'id       6f1d0000-5d1c-a0b1-9b1b-08dd00000001 (body.messageId)',
      'type     urn:message:Shop.Orders:OrderPlaced',
      'created  2026-01-01T00:00:00.000Z\n',
    ].join('\n'),
  );
});

test('I-07 every entry of the inputs can be pasted, and ends as it does in ingest', async () => {
  for (const { case: name, entry, expect: wanted } of inputsOf('producer-formats')) {
    const { code, out } = await detect(entry, '--json');
    const answer = JSON.parse(out) as {
      format: string;
      messages: { messageId: string; idSource: string }[];
      refused?: { reason: string };
    };
    expect(code, name).toBe(wanted.in === 'dlq' ? 1 : 0);
    if (wanted.in === 'dlq') expect(answer.refused?.reason, name).toBe(wanted.reason);
    else expect(answer.messages, name).toHaveLength(1);
    if (wanted.format !== undefined) expect(answer.format, name).toBe(wanted.format);
    if (wanted.idSource !== undefined) expect(answer.messages[0]?.idSource, name).toBe(wanted.idSource);
  }
});

test('says why it would be refused, and with --without-id hash what it would be called', async () => {
  const spring = { headers: { __TypeId__: 'com.example.Order' }, body: {} };
  const refused = await detect(spring);
  expect(refused.code).toBe(1);
  expect(refused.out).toMatch(
    /^format {3}spring \(header __TypeId__\)\nrefused {2}no-id: .*setCreateMessageIds/,
  );
  const hashed = await detect(spring, '--without-id', 'hash');
  expect(hashed.code).toBe(0);
  expect(hashed.out).toMatch(/id {7}sha256:[0-9a-f]{64} \(hash\)/);
});

test('what the producer wrote does not steer the terminal', async () => {
  const { out } = await detect({ props: { messageId: '\u001b[2J\nid  other' } });
  expect(out).toContain('\\u001b[2J\\u000aid  other');
});

test.each([
  ['no JSON', 'nope', [], 'standard input is no JSON'],
  ['no object', '[]', [], 'no JSON object'],
  ['another policy', '{}', ['--without-id', 'generate'], '--without-id takes hash or dead-letter'],
  ['an unknown option', '{}', ['--yes'], '--yes'],
])('%s is told, with the usage', async (_, input, argv, said) => {
  const { code, err } = await detect(input, ...argv);
  expect(code).toBe(2);
  expect(err).toContain(said);
  expect(err).toContain('twinbox format detect < message.json');
});
