import type { AddressInfo } from 'node:net';
import { createAdaptorServer, type ServerType } from '@hono/node-server';
import type pg from 'pg';
import { createApp } from '../../examples/deliveries/app.js';

export const SECRET = 'the secret of the webhook';
export const MAX_BYTES = 50_000;

/** The example application, listening on loopback. */
export interface RunningApp {
  readonly url: string;
  readonly port: number;
  /** Stops listening and cuts every connection, as a crash does. */
  crash(): Promise<void>;
}

export interface ServeOptions {
  readonly pool: pg.Pool;
  readonly port?: number;
  readonly onFault?: (error: Error) => void;
}

export async function serve({ pool, port: wanted = 0, onFault }: ServeOptions): Promise<RunningApp> {
  const app = createApp({ pool, secret: SECRET, maxBytes: MAX_BYTES, ...(onFault && { onFault }) });
  const server: ServerType = createAdaptorServer({ fetch: app.fetch });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(wanted, '127.0.0.1', resolve);
  });
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/webhooks/github`,
    port,
    crash: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        if ('closeAllConnections' in server) server.closeAllConnections();
      }),
  };
}
