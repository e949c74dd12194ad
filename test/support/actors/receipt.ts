import { z } from 'zod';
import { defineProcessor } from '../../../src/actor/index.js';
import { openRuns } from './runs.js';
import { THROWN } from './thrown.js';

const setting = (name: string, preset: number): number => Number(process.env[name] ?? preset);

/** The actor of the cases: its effect does what the test planned for its message, and counts its runs. */
export const receipt = defineProcessor({
  name: 'receipt',
  owner: 'tests',
  subscribes: ['order.placed'],
  schema: z.object({ orderId: z.string(), email: z.email(), totalCents: z.int() }),
  example: { orderId: 'o-1', email: 'a@example.org', totalCents: 1999 },
  attempts: setting('RECEIPT_ATTEMPTS', 2),
  backoff: { firstMs: setting('RECEIPT_BACKOFF_MS', 10), capMs: setting('RECEIPT_BACKOFF_MS', 10) },
  concurrency: setting('RECEIPT_CONCURRENCY', 20),
  timeoutMs: setting('RECEIPT_TIMEOUT_MS', 30_000),
  settings: z.object({ MONGODB_URI: z.string() }),
  open: ({ MONGODB_URI }) => openRuns(MONGODB_URI, 'receipt'),
  effect: async (_event, { messageId, resources, signal, step, commit }): Promise<void> => {
    const runs = resources;
    const { plan, nth, saw, ended } = await runs.begin(messageId);
    const thrown = THROWN.find(({ name }) => name === plan);
    if (thrown !== undefined) {
      const returned: unknown = await thrown.effect();
      await ended();
      return returned as undefined; // what an effect returns is nobody's business: the case says so
    }
    switch (plan) {
      case 'throw':
        throw new Error(`run ${nth} throws`);
      case 'dollars':
        throw Object.assign(new Error('$lease of {$set: 1} is $$NOW'), { name: '$name' });
      case 'exit':
        process.exit(137);
      // eslint-disable-next-line no-fallthrough -- process.exit does not return
      case 'heed':
        await runs.released(messageId, signal);
        if (signal.aborted) {
          await new Promise((resolve) => setTimeout(resolve, 200)); // what an effect needs to tidy up
          await saw(`aborted: ${(signal.reason as { reason?: string }).reason ?? ''}`);
          throw signal.reason;
        }
        break;
      case 'deaf':
        await runs.released(messageId);
        break;
      case 'late':
        await runs.released(messageId);
        await step('late', () => saw('the late step ran')).catch((error: unknown) => saw(String(error)));
        await commit(() => saw('the late commit ran')).catch((error: unknown) => saw(String(error)));
        await saw('over');
        break;
      case 'step then throw':
        await step('a', async (key) => {
          await saw(`a ${key}`);
          return { at: nth };
        });
        await step('b', async (key) => {
          await saw(`b ${key}`);
          if (nth === 1) throw new Error('b fails once');
        });
        break;
      case 'two steps':
        await step('a', () => saw('a'));
        await runs.released(messageId);
        await step('b', () => saw('b')).catch(async (error: unknown) => {
          await saw(String(error));
          throw error;
        });
        break;
      case 'commit':
        await commit(async (session, db) => {
          await db
            .collection<{ _id: string; count: number }>('test_counts')
            .updateOne({ _id: 'all' }, { $inc: { count: 1 } }, { upsert: true, session });
        });
        break;
      case 'commit fails':
        await commit(async (session, db) => {
          await db
            .collection<{ _id: string; count: number }>('test_counts')
            .updateOne({ _id: 'never' }, { $inc: { count: 1 } }, { upsert: true, session });
          throw new Error('the last write is refused');
        });
    }
    await ended();
  },
});
