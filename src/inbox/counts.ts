import { UNFINISHED } from './document.js';
import type { Inbox } from './store.js';

export interface InboxCounts {
  readonly unfinished: number;
  readonly processed: number;
  readonly dead: number;
  /** Age of the oldest unfinished message, in seconds; null when there is none. */
  readonly oldestUnfinishedSeconds: number | null;
}

/** How many messages of an actor stand where. */
export async function countMessages(inbox: Inbox, actor: string): Promise<InboxCounts> {
  const documents = inbox.documents(actor);
  const [unfinished, processed, dead, oldest] = await Promise.all([
    documents.countDocuments(UNFINISHED),
    documents.countDocuments({ processedAt: { $type: 'date' } }),
    documents.countDocuments({ deadAt: { $type: 'date' } }),
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
    processed,
    dead,
    oldestUnfinishedSeconds:
      since === undefined ? null : Math.max(0, (inbox.now().getTime() - since.getTime()) / 1000),
  };
}
