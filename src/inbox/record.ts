import { Binary, BSON, MongoBulkWriteError, type OptionalUnlessRequiredId } from 'mongodb';
import type { Envelope } from '../message/index.js';
import type { InboxDocument } from './document.js';
import type { Inbox } from './store.js';

/** What is known of one message after a batch was written. */
export type Recorded =
  | { readonly kind: 'stored' }
  /** It was there; `final` when nothing is left to do for it. */
  | {
      readonly kind: 'duplicate';
      readonly final: boolean;
      readonly generation: number;
      readonly failures: number;
    }
  /** Its id was there, with another body. */
  | { readonly kind: 'conflict' }
  /** No document can hold it. */
  | { readonly kind: 'too large'; readonly bytes: number }
  /** Not proved to be stored: it must be neither acked nor dropped. */
  | { readonly kind: 'unknown'; readonly error: Error };

const DUPLICATE_KEY = 11_000;
/** MongoDB's 16 MiB, less what a document gains later: steps, runs, an error. */
export const LARGEST_DOCUMENT_BYTES = 15.5 * 1024 * 1024;

/**
 * Writes a batch, unordered, and says for each message what became of it, in their order. Never rejects.
 * @param lookInMs when the sweeper looks first
 */
export async function record(
  inbox: Inbox,
  actor: string,
  envelopes: readonly Envelope[],
  lookInMs: number,
): Promise<Recorded[]> {
  const now = inbox.now();
  const entries = envelopes.map((envelope) => {
    const document = toDocument(envelope, now, lookInMs);
    // One that is too large, or cannot be written, would make the driver throw, and take the whole batch with it.
    return { envelope, document, unfit: unfitness(document) };
  });
  const fitting = entries.filter(({ unfit }) => unfit === undefined);
  const recorded = await insert(
    inbox,
    actor,
    fitting.map(({ envelope }) => envelope),
    fitting.map(({ document }) => document),
  );
  let next = 0;
  return entries.map(({ unfit }) => unfit ?? (recorded[next++] as Recorded));
}

function unfitness(document: object): Recorded | undefined {
  try {
    const bytes = BSON.calculateObjectSize(document);
    return bytes <= LARGEST_DOCUMENT_BYTES ? undefined : { kind: 'too large', bytes };
  } catch (error) {
    return { kind: 'unknown', error: error as Error };
  }
}

async function insert(
  inbox: Inbox,
  actor: string,
  envelopes: readonly Envelope[],
  documents: OptionalUnlessRequiredId<InboxDocument>[],
): Promise<Recorded[]> {
  if (documents.length === 0) return [];
  let verdicts: readonly Verdict[];
  try {
    const { insertedCount } = await inbox.documents(actor).insertMany(documents, { ordered: false });
    verdicts = judgeInsert(envelopes.length, { insertedCount, errors: [], writeConcernFailed: false });
  } catch (error) {
    if (!(error instanceof MongoBulkWriteError))
      return envelopes.map(() => ({ kind: 'unknown', error: error as Error }));
    verdicts = judgeInsert(envelopes.length, {
      insertedCount: error.result.insertedCount,
      // Not error.writeErrors: that one is empty when a write concern failed as well.
      errors: error.result.getWriteErrors().map(({ index, code }) => ({ index, code })),
      writeConcernFailed: error.result.getWriteConcernError() !== undefined,
    });
  }
  return settleDuplicates(inbox, actor, envelopes, verdicts);
}

type Verdict = 'stored' | 'duplicate' | 'unknown';

/** Counts that do not add up prove nothing: then every message of the batch is unknown. */
export function judgeInsert(
  size: number,
  answer: {
    insertedCount: number;
    errors: readonly { index: number; code: number }[];
    writeConcernFailed: boolean;
  },
): Verdict[] {
  const whole = !answer.writeConcernFailed && answer.insertedCount + answer.errors.length === size;
  const verdicts = new Array<Verdict>(size).fill(whole ? 'stored' : 'unknown');
  if (!whole) return verdicts;
  for (const { index, code } of answer.errors)
    verdicts[index] = code === DUPLICATE_KEY ? 'duplicate' : 'unknown';
  return verdicts;
}

/** "Duplicate key" means recorded, not done: a look at the one that is there tells which. */
async function settleDuplicates(
  inbox: Inbox,
  actor: string,
  envelopes: readonly Envelope[],
  verdicts: readonly Verdict[],
): Promise<Recorded[]> {
  const ids = envelopes
    .filter((_, index) => verdicts[index] === 'duplicate')
    .map(({ messageId }) => messageId);
  const there = new Map<
    string,
    Pick<InboxDocument, 'bodyHash' | 'processedAt' | 'deadAt' | 'generation' | 'failures'>
  >();
  let lookFailed: Error | undefined;
  if (ids.length > 0) {
    try {
      const found = await inbox
        .documents(actor)
        .find({ messageId: { $in: ids } })
        .project<InboxDocument>({
          messageId: 1,
          bodyHash: 1,
          processedAt: 1,
          deadAt: 1,
          generation: 1,
          failures: 1,
        })
        .toArray();
      for (const document of found) there.set(document.messageId, document);
    } catch (error) {
      lookFailed = error as Error;
    }
  }
  return envelopes.map(({ messageId, bodyHash }, index): Recorded => {
    const verdict = verdicts[index];
    if (verdict === 'stored') return { kind: 'stored' };
    if (verdict !== 'duplicate')
      return { kind: 'unknown', error: new Error('the insert was not acknowledged for this message') };
    const document = there.get(messageId);
    // Gone between the insert and the look: it expired, or the other write was rolled back. The redelivery settles it.
    if (document === undefined)
      return { kind: 'unknown', error: lookFailed ?? new Error('the document of this id is gone again') };
    if (document.bodyHash !== bodyHash) return { kind: 'conflict' };
    const final = document.processedAt instanceof Date || document.deadAt instanceof Date;
    return { kind: 'duplicate', final, generation: document.generation, failures: document.failures };
  });
}

function toDocument(
  envelope: Envelope,
  now: Date,
  lookInMs: number,
): OptionalUnlessRequiredId<InboxDocument> {
  const { createdAtMs, body, ...rest } = envelope;
  return {
    ...rest,
    headers: { ...rest.headers },
    body: new Binary(body),
    ...(createdAtMs === undefined ? {} : { createdAt: new Date(createdAtMs) }),
    receivedAt: now,
    lookAt: new Date(now.getTime() + lookInMs),
    starts: 0,
    unended: 0,
    failures: 0,
    generation: 1,
    runs: [],
  };
}
