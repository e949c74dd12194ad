import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

/** Why a process is not ready, in words for the operator; undefined when it is. */
export type Readiness = () => string | undefined;

export interface HealthServer {
  readonly port: number;
  close(): Promise<void>;
}

/**
 * `/healthz`: the event loop turns (an answer is the proof; no store is asked, or an outage would restart
 * every process). `/readyz`: 200 only while really attached, else 503 with the reason. Neither shows an id.
 * @throws when the port is taken
 */
export async function serveHealth(host: string, port: number, ready: Readiness): Promise<HealthServer> {
  const server = createServer((request, response) => {
    const path = (request.url ?? '').split('?')[0];
    const why = path === '/readyz' ? ready() : undefined;
    const status = path !== '/healthz' && path !== '/readyz' ? 404 : why === undefined ? 200 : 503;
    response.writeHead(status, { 'content-type': 'text/plain; charset=utf-8', 'cache-control': 'no-store' });
    response.end(status === 404 ? 'not found\n' : `${why ?? 'ok'}\n`);
  });
  await listen(server, host, port);
  return {
    port: (server.address() as AddressInfo).port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function listen(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => {
      server.off('error', reject);
      resolve();
    });
  });
}
