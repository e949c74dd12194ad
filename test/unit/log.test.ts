import { expect, test } from 'vitest';
import { createLog, sparsely } from '../../src/runtime/log.js';

function written(level = 'info'): { lines: string[]; log: ReturnType<typeof createLog> } {
  const lines: string[] = [];
  const log = createLog({
    level,
    process: 'relay.1',
    destination: { write: (line) => void lines.push(line) },
  });
  return { lines, log };
}

test('a line is JSON with the level as a word, the time as ISO, and who wrote it', () => {
  const { lines, log } = written();
  log.info({ event: 'x', messageId: 'm-1' }, 'text');
  expect(JSON.parse(lines[0] ?? '')).toMatchObject({
    level: 'info',
    service: 'twinbox',
    process: 'relay.1',
    event: 'x',
    messageId: 'm-1',
    msg: 'text',
    time: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/) as string,
  });
});

test('no credentials leave, wherever they stand: text, field, error, cause', () => {
  const { lines, log } = written();
  const secret = 'amqp://user:hunter2@host/v';
  const error = new Error(`cannot reach ${secret}`, { cause: new Error(secret) });
  log.warn({ err: error, url: secret, deep: { url: secret } }, `at ${secret}`);
  expect(lines[0]).toContain('***@host');
  expect(lines[0]).not.toContain('hunter2');
});

test('the level holds', () => {
  const { lines, log } = written('error');
  log.warn('quiet');
  log.error('loud');
  expect(lines).toHaveLength(1);
});

test('sparsely: one line each span for a key, however many keys', () => {
  let nowMs = 0;
  const say = sparsely(1_000, () => nowMs);
  const said: string[] = [];
  const at = (ms: number, key: string): void => {
    nowMs = ms;
    say(key, () => said.push(`${key}@${ms}`));
  };
  at(0, 'a');
  at(999, 'a');
  at(999, 'b');
  at(1_000, 'a');
  expect(said).toEqual(['a@0', 'b@999', 'a@1000']);
  for (let i = 0; i < 5_000; i += 1) at(2_000, `key-${i}`);
  expect(said).toHaveLength(5_003);
});
