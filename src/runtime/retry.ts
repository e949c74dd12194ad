export interface BackoffPolicy {
  /** The first wait, in milliseconds. */
  readonly firstMs: number;
  /** No wait is longer, in milliseconds. */
  readonly capMs: number;
}

/**
 * The wait before attempt `failures + 1`, in milliseconds: doubles from `firstMs` up to `capMs`, of which the
 * upper half is drawn at random, so that what failed together does not come back together.
 */
export function backoffMs(failures: number, { firstMs, capMs }: BackoffPolicy, random: number): number {
  const full = Math.min(capMs, firstMs * 2 ** Math.min(Math.max(failures, 1) - 1, 52));
  return Math.round(full / 2 + (full / 2) * random);
}
