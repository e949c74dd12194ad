import { UNFINISHED } from './document.js';
import type { Inbox } from './store.js';

export interface InboxCounts {
  readonly unfinished: number;
  /** From the collection's own count, which is an estimate. */
  readonly processed: number;
  readonly dead: number;
  /** Age of the oldest unfinished message, in seconds; null when there is none. */
  readonly oldestUnfinishedSeconds: number | null;
}

/** How many messages of an actor stand where. */
export async function countMessages(inbox: Inbox, actor: string): Promise<InboxCounts> {
  const documents = inbox.documents(actor);
  // What is processed is the rest: a fortnight of it, counted one by one, would take longer than a page may.
  const [unfinished, all, dead, oldest] = await Promise.all([
    documents.countDocuments(UNFINISHED),
    documents.estimatedDocumentCount(),
    documents.countDocuments({ deadAt: { $exists: true } }),
    documents
      .find(UNFINISHED)
      .sort({ receivedAt: 1 })
      .limit(1)
      .project<{ receivedAt: Date }>({ receivedAt: 1 })
      .toArray(),
  ]);
  const since = oldest[0]?.receivedAt;
  return {
    unfinished,
    processed: Math.max(0, all - unfinished - dead),
    dead,
    oldestUnfinishedSeconds:
      since === undefined ? null : Math.max(0, (inbox.now().getTime() - since.getTime()) / 1000),
  };
}
