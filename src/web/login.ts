import { createHash, timingSafeEqual } from 'node:crypto';
import { getConnInfo } from '@hono/node-server/conninfo';
import { Hono, type Context } from 'hono';
import type { Log } from '../runtime/log.js';
import { createBrake } from './brake.js';
import { loginPage, type PageVariables } from './pages.js';
import type { Sessions } from './session.js';

export interface LoginOptions {
  readonly user: string;
  readonly password: string;
  readonly sessions: Sessions;
  readonly log: Log;
}

/** `/login` and `/logout`. */
export function createLogin({ user, password, sessions, log }: LoginOptions): Hono<PageVariables> {
  const app = new Hono<PageVariables>();
  const brake = createBrake();

  app.get('/login', async (c) =>
    (await sessions.isOpen(c)) ? c.redirect('/') : c.html(loginPage({ nonce: c.get('secureHeadersNonce') })),
  );

  app.post('/login', async (c) => {
    const nonce = c.get('secureHeadersNonce');
    const address = addressOf(c);
    const form: Readonly<Record<string, unknown>> = await c.req.parseBody().catch(() => ({}));
    // Asked after the last wait of this request, or many at once would each find the brake off.
    const waitSeconds = Math.ceil(brake.waitMs(address) / 1_000);
    if (waitSeconds > 0) {
      c.header('Retry-After', String(waitSeconds));
      return c.html(loginPage({ nonce, fault: `Too many failures. Try again in ${waitSeconds} s.` }), 429);
    }
    // Both always, so that the time tells nothing about either.
    const rightUser = isSame(form.user, user);
    const rightPassword = isSame(form.password, password);
    if (!rightUser || !rightPassword) {
      brake.failed(address);
      // Not what was typed: people type passwords into the field above.
      log.warn({ event: 'web.login.refused', address }, 'login refused: wrong user or password');
      return c.html(loginPage({ nonce, fault: 'Wrong user or password.' }), 401);
    }
    brake.succeeded(address);
    await sessions.open(c);
    log.info({ event: 'web.login', user, address }, `${user} logged in`);
    return c.redirect('/', 303);
  });

  app.post('/logout', async (c) => {
    await sessions.close(c);
    log.info({ event: 'web.logout', user, address: addressOf(c) }, `${user} logged out`);
    return c.redirect('/login', 303);
  });
  return app;
}

/** In the same time whatever is given: of equal length after hashing. */
function isSame(given: unknown, expected: string): boolean {
  const hash = (text: string): Buffer => createHash('sha256').update(text).digest();
  return timingSafeEqual(hash(typeof given === 'string' ? given : ''), hash(expected));
}

function addressOf(c: Context): string {
  return getConnInfo(c).remote.address ?? 'unknown';
}
