import { openSession, readBacklog, type Backlog, type OutboxSession } from '../outbox/index.js';
import { bounded } from '../runtime/loop.js';

/** The outbox, seen through one session that is opened when it is needed and opened anew when it is gone. */
export interface OutboxView {
  /** @throws when Postgres does not answer within `timeoutMs`, or has no outbox */
  count(timeoutMs: number): Promise<Backlog>;
  close(): Promise<void>;
}

export function openOutboxView(databaseUrl: string, applicationName: string): OutboxView {
  let opened: Promise<OutboxSession> | undefined;
  const forget = (session: Promise<OutboxSession>): void => {
    if (opened === session) opened = undefined;
  };
  const current = (): Promise<OutboxSession> => {
    if (opened !== undefined) return opened;
    const opening = openSession(databaseUrl, applicationName);
    opening.then(
      ({ gone }) => gone.addEventListener('abort', () => forget(opening)),
      () => forget(opening),
    );
    opened = opening;
    return opening;
  };
  const discard = async (session: Promise<OutboxSession>): Promise<void> => {
    forget(session);
    await session.then((found) => found.close()).catch(() => undefined);
  };
  return {
    count: async (timeoutMs) => {
      const session = current();
      try {
        const counting = session.then(({ client }) => readBacklog(client));
        return await bounded('the answer', timeoutMs, counting);
      } catch (error) {
        // A statement without an answer would hold up every later one of this session.
        void discard(session);
        throw error;
      }
    },
    close: async () => {
      if (opened !== undefined) await discard(opened);
    },
  };
}
