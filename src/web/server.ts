import type { AddressInfo } from 'node:net';
import type { Server } from 'node:http';
import { createAdaptorServer } from '@hono/node-server';

export interface WebServer {
  readonly port: number;
  /** Takes nothing new, lets what is being answered end, for 3 seconds at most. */
  close(): Promise<void>;
}

const LAST_ANSWERS_MS = 3_000;

/** @throws when the address cannot be listened on, with what to change */
export async function serve(
  fetch: Parameters<typeof createAdaptorServer>[0]['fetch'],
  host: string,
  port: number,
): Promise<WebServer> {
  const server = createAdaptorServer({ fetch });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      reject(
        new Error(
          `cannot listen on ${host}:${port} (${error.code ?? error.message}): set PORT and HOST to a free port and an address of this machine`,
          { cause: error },
        ),
      );
    });
    server.listen(port, host, resolve);
  });
  return {
    port: (server.address() as AddressInfo).port,
    close: () =>
      new Promise((resolve) => {
        const late = setTimeout(() => {
          (server as Server).closeAllConnections();
        }, LAST_ANSWERS_MS);
        server.close(() => {
          clearTimeout(late);
          resolve();
        });
      }),
  };
}
