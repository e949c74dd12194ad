import type { ChannelModel } from 'amqplib';
import { readLetter, type Letter } from './letter.js';
import { lookInto, type Looked } from './look.js';
import { deadLetterQueue } from './topology.js';

/**
 * Shows every letter of an actor, oldest first, and changes none (see `lookInto`).
 * @param see not to wait for anything; `enough` ends the look
 */
export async function eachLetter(
  model: ChannelModel,
  actor: string,
  see: (letter: Letter) => 'more' | 'enough',
): Promise<Looked> {
  let enough = false;
  return lookInto<never>(model, {
    queue: deadLetterQueue(actor),
    pick: (message) => {
      if (!enough) enough = see(readLetter(message, actor)) === 'enough';
      return undefined;
    },
    handle: async () => (enough ? 'enough' : 'more'),
  });
}
