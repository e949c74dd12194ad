import { nowPlus, UNFINISHED, type InboxDocument } from './document.js';
import type { Inbox } from './store.js';

export type DueDocument = Pick<
  InboxDocument,
  | 'messageId'
  | 'generation'
  | 'starts'
  | 'failures'
  | 'nextAttemptAt'
  | 'lease'
  | 'receivedAt'
  | 'traceparent'
>;

/** The documents to be looked at, longest due first. By index: the cost grows with what is stuck alone. */
export async function selectDue(inbox: Inbox, actor: string, limit: number): Promise<DueDocument[]> {
  return inbox
    .documents(actor)
    .find({ ...UNFINISHED, lookAt: { $lte: inbox.now() } })
    .sort({ lookAt: 1 })
    .limit(limit)
    .project<DueDocument>({
      _id: 0,
      messageId: 1,
      generation: 1,
      starts: 1,
      failures: 1,
      nextAttemptAt: 1,
      lease: 1,
      receivedAt: 1,
      traceparent: 1,
    })
    .toArray();
}

/** Nothing is written to what was started, or was finished, since it was read, nor to what runs. */
const unchanged = ({ messageId, starts, generation }: DueDocument): Record<string, unknown> => ({
  messageId,
  ...UNFINISHED,
  starts,
  generation,
  $expr: { $lte: [{ $ifNull: ['$lease.until', '$$NOW'] }, '$$NOW'] },
});

/** Looks again in `inMs`. */
export async function lookLater(
  inbox: Inbox,
  actor: string,
  messageIds: readonly string[],
  inMs: number,
): Promise<void> {
  await inbox
    .documents(actor)
    .updateMany({ messageId: { $in: messageIds }, ...UNFINISHED }, [{ $set: { lookAt: nowPlus(inMs) } }]);
}

/** The next generation gets a job of a new id; the job that blocks the old one then ends as stale. @returns whether it won */
export async function raiseGeneration(inbox: Inbox, actor: string, due: DueDocument): Promise<boolean> {
  const { matchedCount } = await inbox
    .documents(actor)
    .updateOne(unchanged(due), { $set: { generation: due.generation + 1 }, $unset: { lease: '' } });
  return matchedCount === 1;
}

/** Its attempts are used up, though nobody wrote it down. @returns whether it won */
export async function bury(inbox: Inbox, actor: string, due: DueDocument): Promise<boolean> {
  const { matchedCount } = await inbox
    .documents(actor)
    .updateOne(unchanged(due), [
      { $set: { deadAt: '$$NOW', deadReason: 'failed' } },
      { $unset: ['lease', 'nextAttemptAt'] },
    ]);
  return matchedCount === 1;
}

/** Everything unfinished is looked at now: Redis was lost whole. @returns how many documents */
export async function lookAtAll(inbox: Inbox, actor: string): Promise<number> {
  const { matchedCount } = await inbox
    .documents(actor)
    .updateMany(UNFINISHED, [{ $set: { lookAt: '$$NOW' } }]);
  return matchedCount;
}
