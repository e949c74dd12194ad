import type { Context, MiddlewareHandler } from 'hono';
import { csrf } from 'hono/csrf';
import type { Log } from '../runtime/log.js';

/**
 * Refuses with 403 whatever changes something and was sent by a page of another site. The browser's own word
 * (`Sec-Fetch-Site`) counts first, since a proxy may have changed `Host`; then `Origin` beside `Host`. A client
 * that sends neither is no browser and cannot be misled by a page, except in the forms that every page may
 * send without asking, and those `csrf` refuses.
 */
export function onlyOwnPages(log: Log): MiddlewareHandler {
  const formsOfOwnPages = csrf({ origin: (origin, c) => isOwn(origin, c) });
  return async (c, next) => {
    if (['GET', 'HEAD', 'OPTIONS'].includes(c.req.method)) return next();
    const site = c.req.header('sec-fetch-site');
    const origin = c.req.header('origin');
    const foreign = site === undefined ? origin !== undefined && !isOwn(origin, c) : site !== 'same-origin';
    if (!foreign) return formsOfOwnPages(c, next);
    log.warn(
      { event: 'web.refused', action: `${c.req.method} ${c.req.path}`, origin, site },
      'refused: sent by a page of another site',
    );
    return c.text('refused: this was sent by a page of another site\n', 403);
  };
}

function isOwn(origin: string, c: Context): boolean {
  return URL.canParse(origin) && new URL(origin).host === c.req.header('host');
}
