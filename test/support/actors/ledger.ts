import { z } from 'zod';
import { defineProcessor } from '../../../src/actor/index.js';
import { openRuns } from './runs.js';

/** A second subscriber of `order.placed`. */
export const ledger = defineProcessor({
  name: 'ledger',
  owner: 'tests',
  subscribes: ['order.placed'],
  schema: z.object({ orderId: z.string() }),
  example: { orderId: 'o-1' },
  attempts: 2,
  backoff: { firstMs: 10, capMs: 10 },
  concurrency: 20,
  timeoutMs: 10_000,
  settings: z.object({ MONGODB_URI: z.string() }),
  open: ({ MONGODB_URI }) => openRuns(MONGODB_URI, 'ledger'),
  effect: async (_event, { messageId, resources }) => {
    const { ended } = await resources.begin(messageId);
    await ended();
  },
});
