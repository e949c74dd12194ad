import { createBullBoard } from '@bull-board/api';
import { BullMQAdapter } from '@bull-board/api/bullMQAdapter';
import type { BeforeHookResult, HookContext } from '@bull-board/api/typings/app';
import { HonoAdapter } from '@bull-board/hono';
import { serveStatic } from '@hono/node-server/serve-static';
import type { Hono } from 'hono';
import type { Queues } from '../queue/index.js';
import type { Log } from '../runtime/log.js';

/** Where the board is mounted, as the browser sees it. */
export const BOARD_PATH = '/board';

export interface BoardOptions {
  readonly queues: Pick<Queues, 'boardQueues' | 'fault'>;
  readonly user: string;
  readonly log: Log;
}

/** The only things that may be done here; a route that a new version brings is refused until it stands here. */
const ALLOWED_ACTIONS = new Set([
  'put /api/queues/pause',
  'put /api/queues/resume',
  'put /api/queues/:queueName/pause',
  'put /api/queues/:queueName/resume',
]);

/** The most that its page offers; its server takes any number, and reads that many jobs in one go. */
const MOST_JOBS_PER_PAGE = 300;

const REFUSED =
  'Refused: the inbox, not Redis, holds the work. A job that is removed here comes back with the next sweep, and one that is added or changed here contradicts its message. Possible here: looking, pause and resume.';

/** Bull Board, to look at jobs and to pause and resume queues. Who may see it is decided in front of it. */
export function createBoard({ queues, user, log }: BoardOptions): Hono {
  const serverAdapter = new HonoAdapter(serveStatic).setBasePath(BOARD_PATH);
  createBullBoard({
    queues: queues.boardQueues().map(adapt),
    serverAdapter,
    options: {
      handlerHooks: {
        before: (context) => {
          const fault = queues.fault();
          if (fault === undefined) return judge(context, user, log);
          return { allow: false, status: 500, errorKey: 'ERRORS.INTERNAL_SERVER_ERROR', message: fault };
        },
      },
      uiConfig: {
        boardTitle: 'Twinbox jobs',
        hideRedisDetails: true,
        hideDocsLink: true,
        miscLinks: [{ text: 'Overview', url: '/' }],
      },
    },
  });
  return serverAdapter.registerPlugin();
}

function adapt(queue: ReturnType<Queues['boardQueues']>[number]): BullMQAdapter {
  const adapter = new BullMQAdapter(queue, { allowRetries: false });
  // Whatever somebody put into a job, this alone is shown of it.
  adapter.setFormatter('data', (data: Readonly<Record<string, unknown>> | null) => ({
    messageId: data?.messageId,
    traceparent: data?.traceparent,
  }));
  adapter.setFormatter('returnValue', () => undefined);
  return adapter;
}

function judge({ method, route, request }: HookContext, user: string, log: Log): BeforeHookResult {
  const action = `${method} ${route}`;
  const params = request.params as Readonly<Record<string, string>>;
  const audit = { user, action, actor: params.queueName, jobId: params.jobId };
  if (method === 'get') {
    const { jobsPerPage } = request.query as Readonly<Record<string, string>>;
    if (Number(jobsPerPage ?? 0) <= MOST_JOBS_PER_PAGE) return { allow: true };
    return { allow: false, status: 400, message: `jobsPerPage is at most ${MOST_JOBS_PER_PAGE}` };
  }
  if (ALLOWED_ACTIONS.has(action)) {
    log.info({ event: 'web.action', ...audit }, `${user}: ${action}`);
    return { allow: true };
  }
  log.warn({ event: 'web.refused', ...audit }, `refused to ${user}: ${action}`);
  return { allow: false, status: 403, message: REFUSED };
}
