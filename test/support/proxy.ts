import { createConnection, createServer, type AddressInfo, type Socket } from 'node:net';

/** A TCP proxy on loopback whose wire can be broken for real. */
export interface Proxy {
  readonly port: number;
  /** Connections open now. */
  readonly open: number;
  /** Connections accepted so far. */
  readonly accepted: number;
  /** Resets every connection (RST), and refuses new ones until `heal`. */
  cut(): void;
  /** Resets every connection once; new ones are taken. */
  reset(): void;
  /** Takes and passes nothing any more, in one direction or both, while connections stay open: a half-open peer. */
  freeze(direction?: 'to-server' | 'to-client' | 'both'): void;
  /** The connections that are open now fall silent for good, without an end; new ones are passed. */
  strand(): void;
  heal(): void;
  close(): Promise<void>;
}

export async function startProxy(target: { host: string; port: number }): Promise<Proxy> {
  const pairs = new Set<{ client: Socket; upstream: Socket; stranded: boolean }>();
  let refusing = false;
  let frozen: 'to-server' | 'to-client' | 'both' | undefined;
  let accepted = 0;

  const server = createServer((client) => {
    accepted += 1;
    if (refusing) {
      client.resetAndDestroy();
      return;
    }
    const upstream = createConnection(target);
    const pair = { client, upstream, stranded: false };
    pairs.add(pair);
    const held = { client: [] as Buffer[], upstream: [] as Buffer[] };
    const pass = (to: 'client' | 'upstream', chunk: Buffer): void => {
      if (pair.stranded) return;
      const stopped = frozen === 'both' || frozen === (to === 'client' ? 'to-client' : 'to-server');
      if (stopped) held[to].push(chunk);
      else pair[to].write(Buffer.concat([...held[to].splice(0), chunk]));
    };
    client.on('data', (chunk: Buffer) => pass('upstream', chunk));
    upstream.on('data', (chunk: Buffer) => pass('client', chunk));
    const end = (): void => {
      pairs.delete(pair);
      client.destroy();
      upstream.destroy();
    };
    for (const socket of [client, upstream]) socket.on('error', end).on('close', end);
    flushers.add(() => {
      for (const to of ['client', 'upstream'] as const) {
        const chunks = held[to].splice(0);
        if (chunks.length > 0 && !pair[to].destroyed) pair[to].write(Buffer.concat(chunks));
      }
    });
  });
  const flushers = new Set<() => void>();
  const resetAll = (): void => {
    for (const { client, upstream } of pairs) {
      client.resetAndDestroy();
      upstream.resetAndDestroy();
    }
  };
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));

  return {
    port: (server.address() as AddressInfo).port,
    get open() {
      return pairs.size;
    },
    get accepted() {
      return accepted;
    },
    cut: () => {
      refusing = true;
      resetAll();
    },
    reset: resetAll,
    freeze: (direction = 'both') => {
      frozen = direction;
    },
    strand: () => {
      for (const pair of pairs) pair.stranded = true;
    },
    heal: () => {
      refusing = false;
      frozen = undefined;
      for (const flush of flushers) flush();
    },
    close: () =>
      new Promise((resolve) => {
        resetAll();
        server.close(() => resolve());
      }),
  };
}
