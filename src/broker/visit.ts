import type { ChannelModel } from 'amqplib';
import { bounded } from '../runtime/loop.js';
import type { BrokerSource } from './access.js';
import { createDialer, destroy, socketOf } from './dial.js';

const CLOSE_MS = 500;
/** For one address; the work may take far longer. */
const CONNECT_MS = 8_000;

/**
 * One connection for one question, closed in any case. For commands that look and go; what stays uses `openConnection`.
 * @param ms for connecting and the whole work together
 * @throws what connecting or the work throws; a TimeoutError after `ms`
 */
export async function visitBroker<T>(
  source: BrokerSource,
  name: string,
  ms: number,
  work: (model: ChannelModel) => Promise<T>,
): Promise<T> {
  let open: ChannelModel | undefined;
  let over = false;
  const visit = async (): Promise<T> => {
    const { model } = await createDialer(source)(name, Math.min(ms, CONNECT_MS), () => over);
    model.on('error', () => undefined); // the call under way rejects; an unheard 'error' would end the process
    if (over) destroy(model);
    open = model;
    return work(model);
  };
  const visiting = visit();
  visiting.catch(() => undefined); // too late, it is nobody's any more
  try {
    return await bounded('the answer of the broker', ms, visiting);
  } finally {
    over = true;
    const model = open;
    if (model !== undefined) {
      await bounded('close', CLOSE_MS, model.close()).catch(() => destroy(model));
      // A broker that blocks this connection reads no close from it: its socket would stay, and the process with it.
      socketOf(model).destroySoon();
    }
  }
}
