import type { WithId } from 'mongodb';
import { describe, expect, it } from 'vitest';
import { readClaim, type InboxDocument } from '../../src/inbox/index.js';

const NOW = new Date('2026-01-01T00:00:00Z');
const at = (ms: number) => new Date(NOW.getTime() + ms);
const REQUEST = { messageId: 'm', generation: 2 };
const lease = (owner: string, leftMs: number) => ({ owner, since: at(-10), until: at(leftMs) });
const read = (part: Partial<InboxDocument>) =>
  readClaim(
    { messageId: 'm', generation: 2, now: NOW, ...part } as WithId<InboxDocument> & { now: Date },
    REQUEST,
    'me',
  );

describe('what a claim finds', () => {
  it('is absent without a document', () => {
    expect(readClaim(undefined, REQUEST, 'me')).toEqual({ kind: 'absent' });
  });
  it.each<[string, Partial<InboxDocument>, object]>([
    ['processed', { processedAt: NOW, generation: 1 }, { kind: 'final' }],
    ['dead', { deadAt: NOW }, { kind: 'final' }],
    ['dead, with a lease of ours left over', { deadAt: NOW, lease: lease('me', 50) }, { kind: 'final' }],
    ['of a later generation', { generation: 3 }, { kind: 'stale' }],
    ['of an earlier generation', { generation: 1, lease: lease('me', 50) }, { kind: 'stale' }],
    ['leased by another', { lease: lease('you', 700) }, { kind: 'leased', remainingMs: 700, owner: 'you' }],
    [
      'leased by another until just now',
      { lease: lease('you', -5) },
      { kind: 'leased', remainingMs: 1, owner: 'you' },
    ],
    ['waiting for its next attempt', { nextAttemptAt: at(1_234) }, { kind: 'early', remainingMs: 1_234 }],
    ['due since the update looked', { nextAttemptAt: at(-1) }, { kind: 'early', remainingMs: 1 }],
    ['given back since the update looked', {}, { kind: 'early', remainingMs: 1 }],
  ])('%s', (_what, part, expected) => {
    expect(read(part)).toEqual(expected);
  });
  it('is ours when the lease is ours, also from a claim whose answer was lost', () => {
    const found = read({ lease: lease('me', 60_000) });
    expect(found.kind).toBe('mine');
    expect(found).not.toHaveProperty('document.now');
  });
});
