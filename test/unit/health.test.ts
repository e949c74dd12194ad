import { afterEach, expect, test } from 'vitest';
import { serveHealth, type HealthServer } from '../../src/runtime/health.js';

let server: HealthServer | undefined;
let why: string | undefined;
afterEach(async () => {
  await server?.close();
  server = undefined;
});

async function ask(path: string): Promise<[number, string]> {
  const response = await fetch(`http://127.0.0.1:${server?.port ?? 0}${path}`);
  return [response.status, await response.text()];
}

test('healthz answers whatever the stores do; readyz tells why not; the rest is not there', async () => {
  server = await serveHealth('127.0.0.1', 0, () => why);
  why = 'the broker cannot be reached';
  expect(await ask('/healthz')).toEqual([200, 'ok\n']);
  expect(await ask('/readyz')).toEqual([503, 'the broker cannot be reached\n']);
  why = undefined;
  expect(await ask('/readyz?verbose=1')).toEqual([200, 'ok\n']);
  expect((await ask('/'))[0]).toBe(404);
});

test('a port that is taken is told, and closing ends open connections', async () => {
  server = await serveHealth('127.0.0.1', 0, () => undefined);
  await expect(serveHealth('127.0.0.1', server.port, () => undefined)).rejects.toThrow('EADDRINUSE');
  await ask('/healthz'); // fetch keeps its connection open
  await server.close();
  await expect(ask('/healthz')).rejects.toThrow();
});
