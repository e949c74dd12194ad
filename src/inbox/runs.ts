import { WriteConcern, type ClientSession, type Document } from 'mongodb';
import {
  literal,
  nowPlus,
  runsWith,
  UNFINISHED,
  type DeadReason,
  type InboxDocument,
  type LastError,
  type StoredDocument,
} from './document.js';
import type { Inbox } from './store.js';

export interface ClaimRequest {
  readonly messageId: string;
  readonly generation: number;
}

/** What a claim found. `mine` alone may run the effect. */
export type Claim =
  | { readonly kind: 'mine'; readonly document: StoredDocument }
  /** Processed or dead: nothing is left to do. */
  | { readonly kind: 'final' }
  /** A live lease of another; it ends in `remainingMs` at the earliest. */
  | { readonly kind: 'leased'; readonly remainingMs: number; readonly owner: string }
  /** Its back-off is not over by MongoDB's clock. */
  | { readonly kind: 'early'; readonly remainingMs: number }
  /** The job is of another generation than the document. */
  | { readonly kind: 'stale' }
  | { readonly kind: 'absent' };

/**
 * Claims what can be claimed of one generation, all in one update, and says by one look what each is. A claim
 * whose answer was lost is settled by the same look: it finds the lease to be ours. The caller never
 * claims a message that it still runs.
 * @returns one answer a request, in their order
 */
export async function claim(
  inbox: Inbox,
  actor: string,
  requests: readonly ClaimRequest[],
  owner: string,
  leaseMs: number,
): Promise<Claim[]> {
  const documents = inbox.documents(actor);
  for (const generation of new Set(requests.map((request) => request.generation))) {
    const ids = requests
      .filter((request) => request.generation === generation)
      .map(({ messageId }) => messageId);
    await documents.updateMany(
      {
        messageId: { $in: ids },
        ...UNFINISHED,
        generation,
        $expr: { $and: [past('$nextAttemptAt'), past('$lease.until')] },
      },
      [
        {
          $set: {
            lease: { owner: literal(owner), since: '$$NOW', until: nowPlus(leaseMs) },
            starts: { $add: ['$starts', 1] },
            unended: { $add: ['$unended', 1] },
            lookAt: nowPlus(leaseMs),
          },
        },
      ],
    );
  }
  const found = await documents
    .aggregate<StoredDocument & { now: Date }>([
      { $match: { messageId: { $in: requests.map(({ messageId }) => messageId) } } },
      { $set: { now: '$$NOW' } },
    ])
    .toArray();
  const byId = new Map(found.map((document) => [document.messageId, document]));
  return requests.map((request) => readClaim(byId.get(request.messageId), request, owner));
}

/** Absent or over, by the server's clock. */
const past = (field: string): Document => ({ $lte: [{ $ifNull: [field, '$$NOW'] }, '$$NOW'] });

export function readClaim(
  document: (StoredDocument & { now: Date }) | undefined,
  request: ClaimRequest,
  owner: string,
): Claim {
  if (document === undefined) return { kind: 'absent' };
  const { now, ...rest } = document;
  if (rest.processedAt != null || rest.deadAt != null) return { kind: 'final' };
  if (rest.generation !== request.generation) return { kind: 'stale' };
  const leftOf = (until: Date): number => Math.max(1, until.getTime() - now.getTime());
  if (rest.lease != null) {
    if (rest.lease.owner === owner) return { kind: 'mine', document: rest };
    return { kind: 'leased', remainingMs: leftOf(rest.lease.until), owner: rest.lease.owner };
  }
  // No lease and not ours: it was too early then, however little is left of the wait now.
  return { kind: 'early', remainingMs: rest.nextAttemptAt == null ? 1 : leftOf(rest.nextAttemptAt) };
}

/** What a run may still write: its own, while its lease is the owner's and nothing is final. */
const fence = (owner: string): Document => ({ ...UNFINISHED, 'lease.owner': owner });

/** How long a body is kept: id and hash stay for the whole retention, which is what duplicates are known by. */
export type KeepBody = 'for-retention' | 'until-processed';

const stamp = (keepBody: KeepBody): Document[] => [
  { $set: { processedAt: '$$NOW', unended: 0, runs: runsWith('processed') } },
  { $unset: ['lease', 'nextAttemptAt', ...(keepBody === 'until-processed' ? ['body'] : [])] },
];

/** Stamps `processedAt` on those whose lease is still the owner's. @returns for each whether it won, in their order */
export async function finish(
  inbox: Inbox,
  actor: string,
  messageIds: readonly string[],
  owner: string,
  keepBody: KeepBody = 'for-retention',
): Promise<boolean[]> {
  const documents = inbox.documents(actor);
  const { matchedCount } = await documents.updateMany(
    { messageId: { $in: messageIds }, ...fence(owner) },
    stamp(keepBody),
  );
  if (matchedCount === messageIds.length) return messageIds.map(() => true);
  const found = await documents
    .find({ messageId: { $in: messageIds }, processedAt: { $type: 'date' } })
    .project<Pick<InboxDocument, 'messageId' | 'runs'>>({ messageId: 1, runs: 1 })
    .toArray();
  // Stamped by us: now, or by an earlier call whose answer was lost.
  const ours = new Set(
    found.filter(({ runs }) => runs.at(-1)?.by === owner).map(({ messageId }) => messageId),
  );
  return messageIds.map((messageId) => ours.has(messageId));
}

/** The message was stamped by a run of this owner: settles a commit whose answer was lost. */
export async function finishedBy(
  inbox: Inbox,
  actor: string,
  messageId: string,
  owner: string,
): Promise<boolean> {
  const document = await inbox.documents(actor).findOne({ messageId, processedAt: { $type: 'date' } });
  return document?.runs.at(-1)?.by === owner;
}

/** Thrown inside and out of `commit` when the run may no longer write. */
export class LeaseLost extends Error {
  override readonly name = 'LeaseLost';
}

/**
 * The stamp and the writes of `work` in one transaction. The stamp goes first: when the lease is lost
 * nothing of `work` is done. A transaction that is repeated runs `work` again.
 * @throws {LeaseLost} when the lease is no longer the owner's; what `work` throws
 */
export async function finishWith(
  inbox: Inbox,
  actor: string,
  messageId: string,
  owner: string,
  work: (session: ClientSession) => Promise<void>,
  keepBody: KeepBody = 'for-retention',
): Promise<void> {
  await inbox.client.withSession((session) =>
    session.withTransaction(
      async () => {
        const { matchedCount } = await inbox
          .documents(actor)
          .updateOne({ messageId, ...fence(owner) }, stamp(keepBody), { session });
        if (matchedCount === 0) throw new LeaseLost(`the lease of ${messageId} is lost`);
        await work(session);
      },
      // On the transaction: inner operations carry none.
      { writeConcern: new WriteConcern('majority', undefined, true), readConcern: { level: 'snapshot' } },
    ),
  );
}

export type FailureEnd = { readonly retryInMs: number } | { readonly dead: DeadReason };

/** Records a failed run: the next attempt's time, or its death. @returns false when the lease was lost */
export async function fail(
  inbox: Inbox,
  actor: string,
  messageId: string,
  owner: string,
  error: LastError,
  end: FailureEnd,
): Promise<boolean> {
  const ending: Document =
    'dead' in end
      ? { deadAt: '$$NOW', deadReason: end.dead, runs: runsWith('dead') }
      : { nextAttemptAt: nowPlus(end.retryInMs), lookAt: nowPlus(end.retryInMs), runs: runsWith('failed') };
  const { matchedCount } = await inbox
    .documents(actor)
    .updateOne({ messageId, ...fence(owner) }, [
      { $set: { failures: { $add: ['$failures', 1] }, unended: 0, lastError: literal(error), ...ending } },
      { $unset: ['lease', ...('dead' in end ? ['nextAttemptAt'] : [])] },
    ]);
  return matchedCount === 1;
}

/** Gives a claimed message back, unfinished and without blame. @returns false when the lease was lost */
export async function handBack(
  inbox: Inbox,
  actor: string,
  messageId: string,
  owner: string,
): Promise<boolean> {
  const { matchedCount } = await inbox
    .documents(actor)
    .updateOne({ messageId, ...fence(owner) }, [
      { $set: { unended: 0, lookAt: '$$NOW', runs: runsWith('handed back') } },
      { $unset: 'lease' },
    ]);
  return matchedCount === 1;
}

/** Prolongs the leases of what runs. @returns the ids whose lease is lost */
export async function heartbeat(
  inbox: Inbox,
  actor: string,
  messageIds: readonly string[],
  owner: string,
  leaseMs: number,
): Promise<string[]> {
  const documents = inbox.documents(actor);
  const ours = { messageId: { $in: messageIds as string[] }, ...fence(owner) };
  const { matchedCount } = await documents.updateMany(ours, [
    { $set: { 'lease.until': nowPlus(leaseMs), lookAt: nowPlus(leaseMs) } },
  ]);
  if (matchedCount === messageIds.length) return [];
  const kept = await documents.find(ours).project<{ messageId: string }>({ messageId: 1 }).toArray();
  const keptIds = new Set(kept.map(({ messageId }) => messageId));
  return messageIds.filter((messageId) => !keptIds.has(messageId));
}

/** True while the run may go on: its lease is the owner's and has not run out. */
export async function holdsLease(
  inbox: Inbox,
  actor: string,
  messageId: string,
  owner: string,
): Promise<boolean> {
  const alive = { $expr: { $gt: ['$lease.until', '$$NOW'] } };
  return (await inbox.documents(actor).countDocuments({ messageId, ...fence(owner), ...alive })) === 1;
}

/** Remembers a finished step. @returns false when the lease was lost */
export async function rememberStep(
  inbox: Inbox,
  actor: string,
  messageId: string,
  owner: string,
  step: { name: string; key: string; result: unknown },
): Promise<boolean> {
  const { matchedCount } = await inbox.documents(actor).updateOne({ messageId, ...fence(owner) }, [
    {
      $set: {
        steps: {
          $concatArrays: [
            { $ifNull: ['$steps', []] },
            [
              {
                name: literal(step.name),
                key: literal(step.key),
                result: literal(step.result),
                at: '$$NOW',
              },
            ],
          ],
        },
      },
    },
  ]);
  return matchedCount === 1;
}

/** Shows how far a run has come. */
export async function showProgress(
  inbox: Inbox,
  actor: string,
  messageId: string,
  owner: string,
  value: unknown,
): Promise<void> {
  await inbox.documents(actor).updateOne({ messageId, ...fence(owner) }, { $set: { progress: value } });
}
