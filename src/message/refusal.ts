/** Why a message cannot be recorded. */
export type RefusalReason = 'no-id' | 'bad-id' | 'too-large' | 'undecodable' | 'bad-envelope' | 'conflict';

export interface Refusal {
  readonly reason: RefusalReason;
  /** A sentence for the person who finds it in the dead-letter queue. */
  readonly detail: string;
}
