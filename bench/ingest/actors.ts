import { z } from 'zod';
import { defineProcessor } from '../../src/actor/index.js';

/** An actor whose messages are recorded and whose effect nobody runs. */
const bench = defineProcessor({
  name: 'bench',
  owner: 'bench',
  subscribes: ['bench.event'],
  schema: z.object({ text: z.string() }),
  example: { text: 'x' },
  attempts: 1,
  backoff: { firstMs: 1_000, capMs: 1_000 },
  concurrency: 1,
  timeoutMs: 1_000,
  effect: () => Promise.resolve(),
});

export const processors = { bench: () => Promise.resolve({ bench }) };
