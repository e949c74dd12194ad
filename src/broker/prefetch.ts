/** What a consumer has seen of its deliveries, on which depends how many it may hold. */
export interface Seen {
  /** Acked on this channel, and delivered for the first time: whatever killed an earlier consumer is not at the head. */
  readonly fresh: boolean;
  /** Acked on this channel although they had been delivered before. */
  readonly redelivered: number;
  /** Of the recent bodies. */
  readonly meanBytes: number;
}

export interface PrefetchLimits {
  readonly most: number;
  /** Bodies held at the same time, in bytes. */
  readonly bytes: number;
}

/** Bodies that one consumer holds: the broker has no prefetch by bytes, so the count follows their sizes. */
export const HELD_BYTES = 32 * 1024 * 1024;

export const NOTHING_SEEN: Seen = { fresh: false, redelivered: 0, meanBytes: 0 };

/**
 * One at first: a message that kills its consumer is then alone in the window, and the deliveries that it costs are
 * counted against no neighbour. A whole window of redeliveries proves as much as one fresh message: a crash
 * leaves no more of them behind.
 */
export function prefetchFor(
  { fresh, redelivered, meanBytes }: Seen,
  { most, bytes }: PrefetchLimits,
): number {
  if (!fresh && redelivered < most) return 1;
  return Math.max(1, Math.min(most, Math.floor(bytes / Math.max(1, meanBytes))));
}

/** A consumer is made anew for another count, which costs two round trips: only what makes a difference is worth them. */
export function isWorthChanging(now: number, wanted: number): boolean {
  return now !== wanted && (now === 1 || wanted <= now / 2 || wanted >= now * 2);
}

const RECENT = 16;

export function delivered(seen: Seen, bytes: number): Seen {
  const { meanBytes } = seen;
  return { ...seen, meanBytes: meanBytes === 0 ? bytes : meanBytes + (bytes - meanBytes) / RECENT };
}

export function acked(seen: Seen, wasRedelivered: boolean): Seen {
  return wasRedelivered ? { ...seen, redelivered: seen.redelivered + 1 } : { ...seen, fresh: true };
}
