import { describe, expect, it } from 'vitest';
import { judgeInsert } from '../../src/inbox/index.js';

const DUPLICATE = 11_000;
const errors = (...pairs: [number, number][]) => pairs.map(([index, code]) => ({ index, code }));
const [S, D, U] = ['stored', 'duplicate', 'unknown'] as const;

/** What the driver was seen to report, and what follows for each message of a batch of five. */
const ANSWERS = [
  { what: 'all stored', inserted: 5, errors: [], verdicts: [S, S, S, S, S] },
  { what: 'two duplicates', inserted: 3, errors: errors([1, DUPLICATE], [3, DUPLICATE]), verdicts: [S, D, S, D, S] },
  { what: 'nothing but duplicates', inserted: 0, errors: errors(...[0, 1, 2, 3, 4].map((i): [number, number] => [i, DUPLICATE])), verdicts: [D, D, D, D, D] },
  { what: 'a duplicate beside another error', inserted: 3, errors: errors([1, DUPLICATE], [2, 121]), verdicts: [S, D, U, S, S] },
  { what: 'duplicates and a failed write concern', inserted: 3, errors: errors([1, DUPLICATE], [3, DUPLICATE]), writeConcernFailed: true, verdicts: [U, U, U, U, U] },
  { what: 'a failed write concern alone', inserted: 5, errors: [], writeConcernFailed: true, verdicts: [U, U, U, U, U] },
  { what: 'a socket that was lost', inserted: 0, errors: [], verdicts: [U, U, U, U, U] },
  { what: 'a second command that died', inserted: 2, errors: [], verdicts: [U, U, U, U, U] },
  { what: 'a success that counts one', inserted: 1, errors: [], verdicts: [U, U, U, U, U] },
]; // prettier-ignore

describe('I-12 what a bulk insert answered', () => {
  it.each(ANSWERS)('$what', ({ inserted, errors, writeConcernFailed = false, verdicts }) => {
    expect(judgeInsert(5, { insertedCount: inserted, errors, writeConcernFailed })).toEqual(verdicts);
  });
});
