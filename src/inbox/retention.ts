const DAY_SECONDS = 86_400;

/** How long an old message may still come again, and how long it is remembered. All in seconds. */
export interface DedupeWindow {
  /** INBOX_RETENTION_SECONDS, counted from the end of the effect. */
  readonly retentionSeconds: number;
  /** OUTBOX_RETENTION_DAYS: what is older cannot be published again. */
  readonly replaySeconds: number;
  /** Age of the oldest row that waits in the outbox: what is published again waits as long. */
  readonly backlogSeconds: number;
}

/**
 * Why a message can come again after the inbox has forgotten it, and then has a second effect; undefined when it
 * cannot. A dead letter that is replayed counts as well: nobody can say how long it will lie there.
 */
export function dedupeWindowFault({
  retentionSeconds,
  replaySeconds,
  backlogSeconds,
}: DedupeWindow): string | undefined {
  const needed = replaySeconds + backlogSeconds;
  if (retentionSeconds > needed) return undefined;
  const days = (seconds: number): string => `${Number((seconds / DAY_SECONDS).toFixed(2))} days`;
  return (
    `a message is remembered for ${days(retentionSeconds)} (INBOX_RETENTION_SECONDS), and can be published again for ` +
    `${days(replaySeconds)} (OUTBOX_RETENTION_DAYS) and wait ${days(backlogSeconds)} then: what is forgotten has its effect twice`
  );
}

export const DEDUPE_WINDOW_FIX =
  'raise INBOX_RETENTION_SECONDS and run `twinbox migrate`, or lower OUTBOX_RETENTION_DAYS';
