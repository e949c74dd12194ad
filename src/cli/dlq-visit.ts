import {
  brokerAccess,
  explain,
  mendHeaders,
  QueueHeld,
  visitBroker,
  type ChannelModel,
} from '../broker/index.js';
import { readConfig } from '../runtime/config.js';
import type { CommandContext } from './command.js';
import { plain } from './table.js';

/** A queue of many thousands takes its time; a broker that is gone is noticed by the heartbeat. */
const MOST_MS = 86_400_000;

/**
 * A connection to the broker for a command on letters: of all the stores, that one alone has to be there.
 * @returns what `work` returns; 1 when the broker refuses something, which is told with the fix
 */
export async function visitLetters(
  { env, stderr }: CommandContext,
  command: string,
  work: (model: ChannelModel) => Promise<number>,
): Promise<number> {
  const name = `twinbox ${command}`;
  readConfig(env, ['RABBITMQ_URL'], { process: name });
  try {
    return await visitBroker(brokerAccess(env, name), name, MOST_MS, (model) => {
      mendHeaders(model);
      return work(model);
    });
  } catch (error) {
    const told = error instanceof QueueHeld ? error.message : explain(error)?.text;
    if (told === undefined) throw error;
    stderr.write(`twinbox: ${plain(told)}\n`);
    return 1;
  }
}
