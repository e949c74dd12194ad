import { createServer, type AddressInfo } from 'node:net';
import { startType, type Running } from '../support/processes.js';

export const USER = 'ada';
export const PASSWORD = 'a long pass phrase <&"';

/** A running console, spoken to as a browser would: no redirect is followed, so that each answer is seen. */
export interface TestConsole {
  readonly url: string;
  readonly process: Running;
  /** The cookie of a new session. */
  login(): Promise<string>;
  send(method: string, path: string, options?: SendOptions): Promise<Answer>;
}

export interface SendOptions {
  readonly cookie?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

export interface Answer {
  readonly status: number;
  readonly text: string;
  readonly headers: Headers;
}

export async function startConsole(env: NodeJS.ProcessEnv): Promise<TestConsole> {
  const port = await freePort();
  const process = startType('web', [], {
    ...env,
    PORT: String(port),
    WEB_USER: USER,
    WEB_PASSWORD: PASSWORD,
  });
  const { address } = await process.line('web.listening');
  const url = (address as string).replace(/\/$/, '');
  const send: TestConsole['send'] = async (method, path, { cookie, headers = {}, body } = {}) => {
    const response = await fetch(url + path, {
      method,
      redirect: 'manual',
      headers: { origin: url, ...(cookie === undefined ? {} : { cookie }), ...headers },
      ...(body === undefined ? {} : { body }),
    });
    return { status: response.status, text: await response.text(), headers: response.headers };
  };
  return {
    url,
    process,
    send,
    login: async () => {
      const answer = await send('POST', '/login', loginForm(USER, PASSWORD));
      if (answer.status !== 303) throw new Error(`the login answered ${answer.status}: ${answer.text}`);
      return cookieOf(answer);
    },
  };
}

export function loginForm(user: string, password: string): SendOptions {
  return {
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: new URLSearchParams({ user, password }).toString(),
  };
}

/** The cookie of an answer, as the browser sends it back. */
export function cookieOf({ headers }: Answer): string {
  return headers.getSetCookie()[0]?.split(';')[0] ?? '';
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
