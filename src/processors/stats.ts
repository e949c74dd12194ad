import { z } from 'zod';
import { defineProcessor } from '../actor/index.js';

/** One document a repository; `deliveries` is the sum of `events`. */
interface RepositoryStats {
  /** Full name; `(none)` gathers what is about no repository. */
  readonly _id: string;
  readonly deliveries: number;
  readonly events: Readonly<Record<string, number>>;
}

/** Counts deliveries for each repository and event: each exactly once, whatever is killed. */
export const stats = defineProcessor({
  name: 'stats',
  owner: 'maintainers',
  subscribes: ['github.#'],
  schema: z.object({ event: z.string().min(1).max(100), repository: z.string().max(500).nullish() }),
  example: { event: 'issues', repository: 'octo/hello' },
  attempts: 8,
  backoff: { firstMs: 200, capMs: 60_000 },
  // Counting goes through one document a repository: more at once only meet in write conflicts.
  concurrency: 1,
  timeoutMs: 30_000,

  effect: async ({ event, repository }, { commit }) => {
    await commit(async (session, db) => {
      await db
        .collection<RepositoryStats>('stats_repository')
        .updateOne(
          { _id: repository ?? '(none)' },
          { $inc: { deliveries: 1, [`events.${fieldName(event)}`]: 1 } },
          { upsert: true, session },
        );
    });
  },
});

/** A dot would open a subdocument, and a name that begins with `$` would be an operator. */
function fieldName(event: string): string {
  return event.replace(/[.$\0]/g, '_');
}
