/** How an effect may end, for an actor with two attempts. Case P-01 for those that throw, P-02 for the others. */
export interface Thrown {
  readonly name: string;
  readonly effect: () => unknown;
  /** The remembered error; undefined when the message is processed all the same. */
  readonly error?: { readonly name: string; readonly contains: string; readonly lacks?: string };
}

/* eslint-disable @typescript-eslint/only-throw-error, @typescript-eslint/prefer-promise-reject-errors --
   throwing what is no error is what this is about */
export const THROWN: readonly Thrown[] = [
  {
    name: 'throws undefined',
    effect: () => {
      throw undefined;
    },
    error: { name: 'NonError', contains: 'undefined' },
  },
  {
    name: 'rejects with nothing',
    effect: () => Promise.reject(),
    error: { name: 'NonError', contains: 'undefined' },
  },
  {
    name: 'throws null',
    effect: () => {
      throw null;
    },
    error: { name: 'NonError', contains: 'null' },
  },
  {
    name: 'throws a string',
    effect: () => {
      throw 'card declined';
    },
    error: { name: 'NonError', contains: 'card declined' },
  },
  {
    name: 'throws a number',
    effect: () => {
      throw 42;
    },
    error: { name: 'NonError', contains: '42' },
  },
  {
    name: 'throws an object',
    effect: () => {
      throw { code: 'E_CARD', reason: 'declined' };
    },
    error: { name: 'NonError', contains: 'E_CARD' },
  },
  {
    name: 'throws a cause that is itself',
    effect: () => {
      const error = new Error('loop');
      error.cause = error;
      throw error;
    },
    error: { name: 'Error', contains: 'loop' },
  },
  {
    name: 'throws a ring of fields',
    effect: () => {
      const error = new Error('ring');
      throw Object.assign(error, { a: { error } });
    },
    error: { name: 'Error', contains: 'ring' },
  },
  {
    name: 'throws several at once',
    effect: () => {
      throw new AggregateError([new Error('first'), new Error('second')], 'two failed');
    },
    error: { name: 'AggregateError', contains: 'two failed' },
  },
  {
    name: 'throws an empty message',
    effect: () => {
      throw new Error('');
    },
    error: { name: 'Error', contains: '' },
  },
  {
    name: 'throws a message of 1 MB',
    effect: () => {
      throw new Error('x'.repeat(1_000_000));
    },
    error: { name: 'Error', contains: 'xxx' },
  },
  {
    name: "throws the queue's own word",
    effect: () => {
      throw Object.assign(new Error('later'), { name: 'DelayedError' });
    },
    error: { name: 'DelayedError', contains: 'later' },
  },
  {
    name: 'throws a secret',
    effect: () => {
      throw new Error('connect ECONNREFUSED amqp://app:s3cret@127.0.0.1:5672');
    },
    error: { name: 'Error', contains: 'ECONNREFUSED', lacks: 's3cret' },
  },
  {
    name: 'throws a frozen error',
    effect: () => {
      throw Object.freeze(new Error('ice'));
    },
    error: { name: 'Error', contains: 'ice' },
  },
  {
    name: 'returns a ring',
    effect: () => {
      const ring: Record<string, unknown> = {};
      ring.ring = ring;
      return ring;
    },
  },
  { name: 'returns a BigInt', effect: () => 1n },
  { name: 'returns 20 MB', effect: () => 'x'.repeat(20_000_000) },
  { name: 'returns a function', effect: () => () => 1 },
];
