/** One delivery of this run, as the application stored it and the inboxes know it. */
export interface Sent {
  readonly eventId: string;
  readonly type: string;
  readonly published: boolean;
}

export interface Arrived {
  readonly actor: string;
  readonly messageId: string;
  readonly processed: boolean;
  /** From the business transaction to `processedAt`; null while there is none. */
  readonly tookMs: number | null;
}

export interface DemoResult {
  /** Distinct deliveries that the application accepted. */
  readonly sent: number;
  readonly published: number;
  /** Documents, one for each actor that subscribes. */
  readonly recorded: number;
  readonly processed: number;
  /** Mails that arrived, and the sum of the counters. */
  readonly effects: number;
  /** `<actor> <event id>` of what should be processed and is not, or has no effect. */
  readonly missing: string[];
  /** What is there though nobody sent it to that actor, or whose effect took place more than once. */
  readonly extra: string[];
  readonly seconds: number;
  readonly p50Ms: number | null;
  readonly p99Ms: number | null;
}

export interface ResultInput {
  readonly sent: readonly Sent[];
  readonly arrived: readonly Arrived[];
  /** Which actors a type is for. */
  readonly actorsOf: (type: string) => readonly string[];
  /** Mails by event id. */
  readonly mails: ReadonlyMap<string, number>;
  /** How much the counters of `stats` grew in this run. */
  readonly counted: number;
  readonly seconds: number;
}

/** Holds what was sent against what arrived and what it did, id by id. */
export function compare({ sent, arrived, actorsOf, mails, counted, seconds }: ResultInput): DemoResult {
  const expected = new Set(
    sent.flatMap(({ eventId, type }) => actorsOf(type).map((actor) => `${actor} ${eventId}`)),
  );
  const done = new Set(
    arrived.filter(({ processed }) => processed).map(({ actor, messageId }) => `${actor} ${messageId}`),
  );
  const missing = [...expected].filter((pair) => !done.has(pair));
  const extra = arrived
    .map(({ actor, messageId }) => `${actor} ${messageId}`)
    .filter((pair) => !expected.has(pair));

  for (const pair of done) {
    const [actor, eventId] = pair.split(' ') as [string, string];
    if (actor !== 'notify') continue;
    const count = mails.get(eventId) ?? 0;
    if (count === 0) missing.push(`${pair} (no mail)`);
    if (count > 1) extra.push(`${pair} (${count} mails)`);
  }
  for (const eventId of mails.keys())
    if (!expected.has(`notify ${eventId}`)) extra.push(`notify ${eventId} (a mail)`);
  const countable = [...expected].filter((pair) => pair.startsWith('stats ')).length;
  if (counted < countable) missing.push(`stats counted ${counted} of ${countable} deliveries`);
  if (counted > countable) extra.push(`stats counted ${counted} deliveries, there were ${countable}`);

  const times = arrived.flatMap(({ tookMs }) => (tookMs === null ? [] : [tookMs])).sort((a, b) => a - b);
  return {
    sent: sent.length,
    published: sent.filter(({ published }) => published).length,
    recorded: arrived.length,
    processed: done.size,
    effects: [...mails.values()].reduce((sum, count) => sum + count, 0) + counted,
    missing,
    extra,
    seconds: Math.round(seconds * 10) / 10,
    p50Ms: percentile(times, 0.5),
    p99Ms: percentile(times, 0.99),
  };
}

function percentile(sorted: readonly number[], share: number): number | null {
  const value = sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
  return value === undefined ? null : Math.round(value);
}
