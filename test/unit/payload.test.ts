import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { readPayload } from '../../src/message/payload.js';

test.each([
  ['an object', '{"a":1}', { a: 1 }],
  ['a string', '"x"', 'x'],
  ['null', 'null', null],
  ['spaces around', ' [1] ', [1]],
  ['a byte-order mark', '\uFEFF{"a":1}', { a: 1 }],
])('%s is JSON', (_, body, value) => {
  expect(readPayload({ body: Buffer.from(body), format: 'plain' }, 1_000)).toEqual({ value });
});

test('a compressed body is decoded first', () => {
  expect(readPayload({ body: gzipSync('{"a":1}'), contentEncoding: 'gzip', format: 'plain' }, 1_000)).toEqual(
    { value: { a: 1 } },
  );
});

test.each([
  ['not JSON', Buffer.from('{"card":"4111'), 'the body is not JSON'],
  ['empty', Buffer.alloc(0), 'the body is not JSON'],
  ['not UTF-8', Buffer.from([0x22, 0xff, 0x22]), 'the body is not UTF-8'],
])('%s is a fault that quotes nothing of the body', (_, body, fault) => {
  expect(readPayload({ body, format: 'plain' }, 1_000)).toEqual({ fault });
});

test('__proto__ stays an own key and changes no prototype', () => {
  const payload = readPayload({ body: Buffer.from('{"__proto__":{"admin":true}}'), format: 'plain' }, 1_000);
  expect(Object.keys((payload as { value: object }).value)).toEqual(['__proto__']);
  expect(({} as { admin?: boolean }).admin).toBeUndefined();
});
