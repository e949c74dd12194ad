import { randomUUID, scrypt } from 'node:crypto';
import type { Context } from 'hono';
import { deleteCookie, getSignedCookie, setSignedCookie } from 'hono/cookie';

/** Who is logged in, by a signed cookie: nothing is stored, so every web process knows every session. */
export interface Sessions {
  open(c: Context): Promise<void>;
  isOpen(c: Context): Promise<boolean>;
  /**
   * Ends the session in the browser, and in this process for a copy of the cookie too. (Another web process
   * does not hear of it; what ends every copy everywhere is another password.)
   */
  close(c: Context): Promise<void>;
}

export interface SessionsOptions {
  readonly user: string;
  readonly password: string;
  /** Milliseconds since 1970. */
  readonly now?: () => number;
}

const COOKIE = 'twinbox_session';
const LIFE_SECONDS = 12 * 3_600;
const MOST_ENDED = 10_000;

/** Takes a fraction of a second and 64 MiB, once: see `deriveKey`. */
export async function createSessions({ user, password, now = Date.now }: SessionsOptions): Promise<Sessions> {
  const key = await deriveKey(user, password);
  const ended = new Set<string>();
  const options = (c: Context) =>
    ({ path: '/', httpOnly: true, sameSite: 'Strict', secure: cameByHttps(c) }) as const;
  const current = async (c: Context): Promise<string | undefined> => {
    const value = await getSignedCookie(c, key, COOKIE);
    if (typeof value !== 'string' || ended.has(value)) return undefined;
    const expiresAtMs = Number(/^(\d+)\./.exec(value)?.[1] ?? 0);
    return now() < expiresAtMs ? value : undefined;
  };
  return {
    open: async (c) => {
      const value = `${now() + LIFE_SECONDS * 1_000}.${randomUUID()}`;
      await setSignedCookie(c, COOKIE, value, key, { ...options(c), maxAge: LIFE_SECONDS });
    },
    isOpen: async (c) => (await current(c)) !== undefined,
    close: async (c) => {
      const value = await current(c);
      if (value !== undefined) ended.add(value);
      if (ended.size > MOST_ENDED) ended.delete(ended.values().next().value ?? '');
      deleteCookie(c, COOKIE, options(c));
    },
  };
}

/**
 * The key that signs. Derived, so that several web processes agree on it without a further secret and a
 * changed password ends every session; slowly, so that a stolen cookie is no quick test for guesses.
 */
function deriveKey(user: string, password: string): Promise<Uint8Array<ArrayBuffer>> {
  return new Promise((resolve, reject) => {
    const cost = { N: 2 ** 16, r: 8, p: 1, maxmem: 128 * 1024 * 1024 };
    scrypt(password, `twinbox console session of ${user}`, 32, cost, (error, key) => {
      if (error === null) resolve(new Uint8Array(key));
      else reject(error);
    });
  });
}

/**
 * This process speaks plain HTTP: that a request came by https is known from the proxy's header alone. Anybody
 * may send that header, and it is believed for one thing only, the `Secure` mark on the sender's own cookie:
 * who lies gets a cookie that his browser will not send back. Nothing is ever allowed because of it.
 */
function cameByHttps(c: Context): boolean {
  return c.req.header('x-forwarded-proto')?.split(',')[0]?.trim().toLowerCase() === 'https';
}
