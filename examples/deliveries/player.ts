import { randomUUID } from 'node:crypto';
import { sign } from '@octokit/webhooks-methods';
import { pause } from '../../src/runtime/loop.js';
import { backoffMs } from '../../src/runtime/retry.js';
import { loadPayloads, type Payload } from './payloads.js';

export interface PlayOptions {
  /** Where the application takes deliveries: `http://127.0.0.1:4000/webhooks/github` */
  readonly url: string;
  readonly secret: string;
  /** Distinct deliveries; beyond the payloads there are, it goes round them with new ids. */
  readonly count: number;
  /** Share of the deliveries that are sent a second time, 0 to 1. */
  readonly redeliveries?: number;
  /** Requests under way at the same time (a re-delivery beside its first comes on top). */
  readonly concurrency?: number;
  /** From 0 up to 1, as `Math.random`: a seeded one makes the same choices again. */
  readonly random?: () => number;
  readonly onProgress?: (progress: PlayProgress) => void;
  /** Begins nothing new and stops repeating what fails; answers what is known by then. */
  readonly signal?: AbortSignal;
  /** How long one request is repeated while the application is away, in milliseconds. */
  readonly patienceMs?: number;
  readonly payloads?: readonly Payload[];
}

export interface PlayProgress {
  readonly accepted: number;
  readonly redelivered: number;
  readonly refused: number;
}

export interface Played {
  /** Distinct ids that the application has stored. */
  readonly deliveries: string[];
  /** Second sendings that were answered. */
  readonly redelivered: number;
  /** Ids that were answered with a refusal. */
  readonly refused: number;
  /** The first refusal's status and text. */
  readonly refusal?: string;
  /** Ids sent without an answer that says whether they are stored: only after an abort or lost patience. */
  readonly unknown: string[];
}

interface Request {
  readonly id: string;
  readonly payload: Payload;
}

type Answer = { readonly is: 'stored' | 'unknown' } | { readonly is: 'refused'; readonly why: string };

const BACKOFF = { firstMs: 50, capMs: 2_000 };
const REQUEST_TIMEOUT_MS = 15_000;
/** How many wait for their second sending while first ones are still being sent. */
const LATER_AT_MOST = 20;

/**
 * Posts signed deliveries as GitHub does, each with an id of its own; a share of them twice, with the same id
 * and body: half of those beside the first, half some deliveries later. What meets no connection, or an answer
 * that says come back, is sent again with the same id.
 */
export async function play(options: PlayOptions): Promise<Played> {
  const { count, redeliveries = 0.1, concurrency = 8, random = Math.random, signal, onProgress } = options;
  const payloads = options.payloads ?? loadPayloads();
  if (payloads.length === 0) throw new RangeError('play: there are no payloads to send');

  const deliveries: string[] = [];
  const unknown: string[] = [];
  const later: Request[] = [];
  let begun = 0;
  let redelivered = 0;
  let refused = 0;
  let refusal: string | undefined;

  const sendFirst = async (request: Request): Promise<void> => {
    const answer = await deliver(request, options);
    if (answer.is === 'stored') deliveries.push(request.id);
    if (answer.is === 'unknown') unknown.push(request.id);
    if (answer.is === 'refused') {
      refused += 1;
      refusal ??= answer.why;
    }
  };
  const sendAgain = async (request: Request): Promise<void> => {
    const answer = await deliver(request, options);
    if (answer.is === 'stored') redelivered += 1;
  };
  const sendNext = async (): Promise<void> => {
    const due = later.length > LATER_AT_MOST || begun === count ? later.shift() : undefined;
    if (due !== undefined) return sendAgain(due);

    const request = { id: randomUUID(), payload: payloads[begun % payloads.length] as Payload };
    begun += 1;
    const twice = random() < redeliveries;
    const together = twice && random() < 0.5;
    await Promise.all([sendFirst(request), together && sendAgain(request)]);
    if (twice && !together) later.push(request);
  };
  const worker = async (): Promise<void> => {
    while (signal?.aborted !== true && (begun < count || later.length > 0)) {
      await sendNext();
      onProgress?.({ accepted: deliveries.length, redelivered, refused });
    }
  };

  await Promise.all(Array.from({ length: concurrency }, worker));
  return { deliveries, redelivered, refused, ...(refusal !== undefined && { refusal }), unknown };
}

/** One delivery until it is answered, the patience is at its end, or the signal aborts. */
async function deliver({ id, payload }: Request, options: PlayOptions): Promise<Answer> {
  const { url, secret, signal, random = Math.random, patienceMs = 120_000 } = options;
  const headers = {
    'content-type': 'application/json',
    'user-agent': 'GitHub-Hookshot/player',
    'x-github-delivery': id,
    'x-github-event': payload.event,
    'x-hub-signature-256': await sign(secret, payload.body.toString()),
  };
  const deadline = Date.now() + patienceMs;
  for (let failures = 1; ; failures += 1) {
    const answer = await post(url, headers, payload.body);
    if (answer !== undefined) return answer;
    if (signal?.aborted === true || Date.now() > deadline) return { is: 'unknown' };
    await pause(backoffMs(failures, BACKOFF, random()), signal);
  }
}

/** The answer; undefined when there was none, or one that asks to come back. */
async function post(url: string, headers: Record<string, string>, body: Buffer): Promise<Answer | undefined> {
  try {
    const signal = AbortSignal.timeout(REQUEST_TIMEOUT_MS);
    const response = await fetch(url, { method: 'POST', headers, body, signal });
    const text = await response.text();
    if (response.ok) return { is: 'stored' };
    if (response.status >= 502 || response.status === 429) return undefined;
    return { is: 'refused', why: `${response.status} ${text}` };
  } catch {
    return undefined;
  }
}
