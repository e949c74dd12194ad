import { openCatalog } from '../actor/index.js';
import { openInbox } from '../inbox/index.js';
import { openQueues } from '../queue/index.js';
import type { Log } from '../runtime/log.js';
import { bounded } from '../runtime/loop.js';
import type { ProcessType } from '../runtime/process.js';
import { createApp } from './app.js';
import { createBoard } from './board.js';
import { openOutboxView } from './outbox-view.js';
import { createOverview } from './overview.js';
import { serve } from './server.js';
import { createSessions } from './session.js';

const PRESET_PORT = 3_000;
const CLOSE_MS = 2_000;

/**
 * The console: an overview of every hop, and Bull Board, behind a login. Any number of them may run.
 * No store has to answer for it to start or to serve: an outage is what people come to look at.
 */
export const web: ProcessType<'DATABASE_URL' | 'MONGODB_URI' | 'REDIS_URL' | 'WEB_USER' | 'WEB_PASSWORD'> = {
  name: 'web',
  needs: ['DATABASE_URL', 'MONGODB_URI', 'REDIS_URL', 'WEB_USER', 'WEB_PASSWORD'],
  health: false,
  start: async ({ config, log, instance }) => {
    const user = config.WEB_USER;
    const actors = (await openCatalog(config.TWINBOX_PROCESSORS)).map(({ name }) => name);
    const sessions = await createSessions({ user, password: config.WEB_PASSWORD });
    const outbox = openOutboxView(config.DATABASE_URL, instance);
    const inbox = openInbox(config.MONGODB_URI, instance);
    const queues = openQueues({
      url: config.REDIS_URL,
      prefix: config.REDIS_PREFIX,
      actors,
      maxWaiting: config.QUEUE_MAX_WAITING,
      log,
    });
    const closeStores = async (): Promise<void> => {
      await outbox.close();
      // The console only reads: nothing is lost with a connection that does not end.
      await bounded('closing the inbox', CLOSE_MS, inbox.close()).catch(() => undefined);
      await queues.close();
    };

    let stopping = false;
    const app = createApp({
      user,
      password: config.WEB_PASSWORD,
      sessions,
      overview: createOverview({ actors, outbox, inbox, queues }),
      board: createBoard({ queues, user, log }),
      ready: () => (stopping ? 'stopping' : undefined),
      log,
    });
    const port = config.PORT === 0 ? PRESET_PORT : config.PORT;
    const server = await serve(app.fetch, config.HOST, port).catch(async (error: unknown) => {
      await closeStores();
      throw error;
    });
    sayWhere(log, config.HOST, server.port);

    return {
      ready: () => undefined,
      stop: async () => {
        stopping = true;
        await server.close();
        await closeStores();
      },
    };
  },
};

function sayWhere(log: Log, host: string, port: number): void {
  const address = `http://${host.includes(':') ? `[${host}]` : host}:${port}/`;
  log.info({ event: 'web.listening', address }, `the console is at ${address}`);
  if (/^(127\.|::1$|localhost$)/.test(host)) return;
  log.warn(
    { event: 'web.exposed', host },
    `the console listens beyond loopback (HOST=${host}) and speaks plain HTTP: put a proxy with TLS in front of it that sets X-Forwarded-Proto`,
  );
}
