import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { decodedBody } from '../../src/message/encoding.js';

const BODY = Buffer.from('{"a":1}');
const LIMIT = 1_000;

test.each([
  ['nothing', undefined, BODY],
  ['an empty name', '', BODY],
  ['a character set', 'UTF-8', BODY],
  ['identity', ' identity ', BODY],
  ['gzip', 'gzip', gzipSync(BODY)],
  ['GZIP', 'GZIP', gzipSync(BODY)],
  ['x-gzip', 'x-gzip', gzipSync(BODY)],
  ['deflate', 'deflate', deflateSync(BODY)],
  ['br', 'br', brotliCompressSync(BODY)],
])('%s is decoded', (_, encoding, sent) => {
  expect(decodedBody(sent, encoding, LIMIT)).toEqual({ body: BODY });
});

test.each(['zstd', 'toString', '__proto__', 'constructor', 'gzip, br'])('%s is unknown', (encoding) => {
  expect(decodedBody(BODY, encoding, LIMIT)).toMatchObject({
    reason: 'undecodable',
    detail: expect.stringContaining('gzip, deflate and br') as string,
  });
});

test('bytes that are not what the encoding says, or stop half-way', () => {
  expect(decodedBody(BODY, 'gzip', LIMIT)).toMatchObject({ reason: 'undecodable' });
  expect(decodedBody(gzipSync(BODY).subarray(0, 12), 'gzip', LIMIT)).toMatchObject({ reason: 'undecodable' });
});

test.each([
  ['gzip', gzipSync],
  ['deflate', deflateSync],
  ['br', brotliCompressSync],
] as const)('%s: a few bytes that unfold beyond the limit are not unfolded', (encoding, compress) => {
  const bomb = compress(Buffer.alloc(30_000_000));
  const before = process.memoryUsage().arrayBuffers;
  expect(decodedBody(bomb, encoding, LIMIT)).toMatchObject({
    reason: 'too-large',
    detail: expect.stringContaining('MAX_BODY_BYTES = 1000') as string,
  });
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(20_000_000);
  expect(decodedBody(compress(Buffer.alloc(LIMIT)), encoding, LIMIT)).toHaveProperty('body.length', LIMIT);
});
