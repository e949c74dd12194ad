import { expect, test } from 'vitest';
import { explain } from '../../src/broker/index.js';

const call = (message: string, classId = 0, methodId = 0): Error =>
  Object.assign(new Error(`Operation failed; ${message}`), { classId, methodId });

test.each([
  ["received '20' but current is '50'", '50', '20'],
  ["received none but current is the value '50' of type 'byte'", '50', undefined],
  ["received the value 'reject-publish' of type 'longstr' but current is none", undefined, 'reject-publish'],
])('406, %s: what is there and what must be', (words, have, want) => {
  const told = explain(
    call(`406 (X) with message "X - inequivalent arg 'x-y' for queue 'twinbox.a' in vhost 'v': ${words}"`),
  );
  expect(told).toMatchObject({
    kind: 'mismatch',
    mismatch: { what: 'queue', name: 'twinbox.a', argument: 'x-y', have, want },
  });
  expect(told?.text).toContain('twinbox topology apply --migrate-queue twinbox.a');
});

test.each([
  [40, 10, 'exchange', 'configure'],
  [50, 10, 'queue', 'configure'],
  [50, 10, 'exchange', 'write to'],
  [50, 20, 'queue', 'write to'],
  [50, 20, 'exchange', 'read'],
  [60, 40, 'exchange', 'write to'],
  [60, 20, 'queue', 'read'],
])('403 of call %i.%i on a %s: the right is "%s"', (classId, methodId, what, right) => {
  const message = `ACCESS_REFUSED - access to ${what} 'twinbox.x' in vhost 'v' refused for user 'u'`;
  expect(explain(call(message, classId, methodId))?.text).toContain(
    `user 'u' has no right to ${right} ${what} 'twinbox.x' in virtual host 'v'`,
  );
});

test('a broker that names the right itself is believed', () => {
  const message = "ACCESS_REFUSED - read access to queue 'q' in vhost 'v' refused for user 'u'";
  expect(explain(call(message))?.text).toContain("has no right to read queue 'q'");
});

test('what is missing, a refused login, a missing virtual host; never a password', () => {
  expect(explain(call("NOT_FOUND - no exchange 'twinbox.events' in vhost 'v'"))?.text).toContain(
    'twinbox topology apply',
  );
  const address = 'amqp://u:hunter2@127.0.0.1/v';
  const refused = new Error('Handshake terminated by server: 403 (ACCESS-REFUSED) with message "…"');
  const unopened = new Error('Expected ConnectionOpenOk; got <ConnectionClose channel:0>');
  expect(explain(refused, address)?.text).toContain("refuses the login of user 'u'");
  expect(explain(unopened, address)?.text).toContain("virtual host 'v'");
  for (const error of [refused, unopened]) expect(explain(error, address)?.text).not.toContain('hunter2');
  expect(explain(new Error('PRECONDITION_FAILED - something else'), address)).toBeUndefined();
});
