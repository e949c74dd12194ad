import type { Recorded } from '../inbox/index.js';
import type { Refusal } from '../message/index.js';

/** What is done with a delivery. Nothing is acked that is not recorded, or whose dead letter is not confirmed. */
export type Action =
  /** Acked; then a job, where one may be missing. */
  | { readonly kind: 'ack'; readonly enqueue?: { readonly generation: number; readonly failures: number } }
  | { readonly kind: 'dead-letter'; readonly refusal: Refusal }
  /** Given back: nobody knows whether it is stored. */
  | { readonly kind: 'give back'; readonly error: Error };

export function decide(recorded: Recorded): Action {
  switch (recorded.kind) {
    case 'stored':
      return { kind: 'ack', enqueue: { generation: 1, failures: 0 } };
    case 'duplicate':
      // "Duplicate" means recorded, not done: the process that recorded it may have died before its job was made.
      return recorded.final
        ? { kind: 'ack' }
        : { kind: 'ack', enqueue: { generation: recorded.generation, failures: recorded.failures } };
    case 'conflict':
      return {
        kind: 'dead-letter',
        refusal: {
          reason: 'conflict',
          detail: 'this id is recorded already, with another body; the first one stays',
        },
      };
    case 'too large':
      return {
        kind: 'dead-letter',
        refusal: {
          reason: 'too-large',
          detail: `its document would have ${recorded.bytes} bytes, more than MongoDB holds: store it elsewhere and send a reference`,
        },
      };
    case 'unknown':
      return { kind: 'give back', error: recorded.error };
  }
}

/** A batch is one delivery: given back when one of it is not known to be stored, a dead letter when one is refused. */
export function jointly(actions: readonly Action[]): Action {
  const [only] = actions;
  if (actions.length === 1 && only !== undefined) return only;
  const given = actions.find(({ kind }) => kind === 'give back');
  if (given !== undefined) return given;
  const at = actions.findIndex(({ kind }) => kind === 'dead-letter');
  const refused = actions[at];
  if (refused?.kind !== 'dead-letter') return { kind: 'ack' };
  const { reason, detail } = refused.refusal;
  return {
    kind: 'dead-letter',
    refusal: {
      reason,
      detail: `event ${at + 1} of the batch of ${actions.length}: ${detail}; the others are recorded`,
    },
  };
}
