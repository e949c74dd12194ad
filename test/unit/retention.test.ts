import { expect, test } from 'vitest';
import { dedupeWindowFault } from '../../src/inbox/index.js';
import { readConfig } from '../../src/runtime/config.js';

const DAY = 86_400;

test('what is remembered for longer than it can be published again and wait is safe', () => {
  expect(
    dedupeWindowFault({ retentionSeconds: 14 * DAY, replaySeconds: 7 * DAY, backlogSeconds: 6.9 * DAY }),
  ).toBeUndefined();
});

test.each([
  ['as long as it can be published again', 14, 0],
  ['longer, but a backlog takes the rest', 7, 7],
])('remembered only %s: a second effect is possible', (_, replayDays, backlogDays) => {
  expect(
    dedupeWindowFault({
      retentionSeconds: 14 * DAY,
      replaySeconds: replayDays * DAY,
      backlogSeconds: backlogDays * DAY,
    }),
  ).toContain('has its effect twice');
});

test('the default settings are safe', () => {
  const { INBOX_RETENTION_SECONDS, OUTBOX_RETENTION_DAYS } = readConfig({}, [], { process: 'test' });
  expect(
    dedupeWindowFault({
      retentionSeconds: INBOX_RETENTION_SECONDS,
      replaySeconds: OUTBOX_RETENTION_DAYS * DAY,
      backlogSeconds: 3 * DAY,
    }),
  ).toBeUndefined();
});
