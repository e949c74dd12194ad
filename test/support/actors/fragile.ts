import { z } from 'zod';
import { defineProcessor } from '../../../src/actor/index.js';
import { openRuns } from './runs.js';

if (process.env.FRAGILE_BREAKS === 'yes') throw new Error('this file does not load today');

/** Its file throws while it is loaded when FRAGILE_BREAKS says so. */
export const fragile = defineProcessor({
  name: 'fragile',
  owner: 'tests',
  subscribes: ['order.fragile'],
  schema: z.object({ orderId: z.string() }),
  example: { orderId: 'o-1' },
  attempts: 3,
  backoff: { firstMs: 10, capMs: 10 },
  concurrency: 50,
  timeoutMs: 10_000,
  settings: z.object({ MONGODB_URI: z.string() }),
  open: ({ MONGODB_URI }) => openRuns(MONGODB_URI, 'fragile'),
  effect: async (_event, { messageId, resources }) => {
    const { ended } = await resources.begin(messageId);
    await ended();
  },
});
