import { Hono, type MiddlewareHandler } from 'hono';
import { bodyLimit } from 'hono/body-limit';
import { HTTPException } from 'hono/http-exception';
import { NONCE, secureHeaders } from 'hono/secure-headers';
import type { Log } from '../runtime/log.js';
import { BOARD_PATH } from './board.js';
import { createLogin } from './login.js';
import { onlyOwnPages } from './origin.js';
import type { Overview } from './overview.js';
import { overviewPage, type PageVariables } from './pages.js';
import type { Sessions } from './session.js';

export interface AppOptions {
  readonly user: string;
  readonly password: string;
  readonly sessions: Sessions;
  readonly overview: { read(): Promise<Overview> };
  readonly board: Hono;
  /** Why the process does not serve; undefined when it does. */
  readonly ready: () => string | undefined;
  readonly log: Log;
}

const LARGEST_BODY_BYTES = 64 * 1024;

/**
 * The whole console. What is registered below the session's guard is closed to everybody without one, and so
 * is every path that does not exist: open are `/healthz`, `/readyz` and `/login`, and nothing else.
 */
export function createApp(options: AppOptions): Hono<PageVariables> {
  const { user, sessions, overview, board, ready, log } = options;
  const app = new Hono<PageVariables>();

  app.use(headers());
  app.get('/healthz', (c) => c.text('ok\n'));
  // Ready also while a store is away: taken out of the balancer, the console could not show the outage.
  app.get('/readyz', (c) => {
    const why = ready();
    return c.text(`${why ?? 'ok'}\n`, why === undefined ? 200 : 503);
  });

  app.use(sessionNeeded(sessions));
  app.use(onlyOwnPages(log));
  app.use(bodyLimit({ maxSize: LARGEST_BODY_BYTES }));
  app.route('/', createLogin(options));
  app.get('/', async (c) =>
    c.html(overviewPage({ overview: await overview.read(), user, nonce: c.get('secureHeadersNonce') })),
  );
  app.get(`${BOARD_PATH}/`, (c) => c.redirect(BOARD_PATH)); // its router knows itself without the slash only
  app.route(BOARD_PATH, board);

  app.notFound((c) => c.text('there is no such page\n', 404));
  app.onError((error, c) => {
    if (error instanceof HTTPException) return error.getResponse();
    log.error({ event: 'web.failed', err: error, path: c.req.path }, 'a request failed');
    return c.text('this failed; the log of the process says why\n', 500);
  });
  return app;
}

function sessionNeeded(sessions: Sessions): MiddlewareHandler {
  return async (c, next) => {
    if (c.req.path === '/login' || (await sessions.isOpen(c))) return next();
    const isPage = ['GET', 'HEAD'].includes(c.req.method) && !c.req.path.startsWith(`${BOARD_PATH}/api/`);
    return isPage ? c.redirect('/login') : c.json({ error: 'log in first' }, 401);
  };
}

function headers(): MiddlewareHandler {
  const common = {
    // Under `no-referrer` browsers send `Origin: null` with our own forms.
    referrerPolicy: 'same-origin',
    xFrameOptions: 'DENY',
    // Whether all of a host is https only, its proxy knows.
    strictTransportSecurity: false,
  };
  const closed = { defaultSrc: ["'none'"], frameAncestors: ["'none'"], formAction: ["'self'"] };
  const pages = secureHeaders({
    ...common,
    contentSecurityPolicy: { ...closed, styleSrc: [NONCE], imgSrc: ['data:'], baseUri: ["'none'"] },
  });
  const board = secureHeaders({
    ...common,
    contentSecurityPolicy: {
      ...closed,
      scriptSrc: ["'self'"],
      styleSrc: ["'self'", "'unsafe-inline'"], // Bull Board writes style attributes and elements
      imgSrc: ["'self'", 'data:'],
      fontSrc: ["'self'", 'data:'],
      connectSrc: ["'self'"],
      baseUri: ["'self'"],
    },
  });
  return async (c, next) => {
    const isBoard = c.req.path === BOARD_PATH || c.req.path.startsWith(`${BOARD_PATH}/`);
    await (isBoard ? board : pages)(c, next);
    const isStatic = c.req.path.startsWith(`${BOARD_PATH}/static/`) && c.res.ok;
    c.header('Cache-Control', isStatic ? 'private, max-age=3600' : 'no-store');
  };
}
