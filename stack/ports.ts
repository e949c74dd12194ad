import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { randomInt } from 'node:crypto';
import type { Ports } from './service.js';

/** Ports of well-known servers (RabbitMQ's distribution, MongoDB, NATS and others) are left to them. */
const LOWEST = 20_000;
const WELL_KNOWN = new Set([25_672, 27_017, 27_018, 27_019, 26_379, 28_015]);

/**
 * Ports handed out here lie below the range from which the kernel takes the ports of outgoing connections. A client
 * that keeps dialling a dead server's port inside that range would sooner or later be given this very port for
 * its own end, connect to itself, and keep the server from coming back.
 */
const highestPort = (): number => {
  try {
    const [low] = readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').trim().split(/\s+/);
    return Math.max(Number(low) - 1, LOWEST + 5_000);
  } catch {
    return 32_767;
  }
};

/** Whether a server could listen on this loopback port now. */
export const isFree = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => server.close(() => resolve(true)));
  });

/**
 * One port for each name: the remembered one while it is free, otherwise another.
 * `taken` holds what was handed out already and is added to.
 */
export const choosePorts = async (
  names: readonly string[],
  remembered: Ports,
  taken: Set<number>,
): Promise<Ports> => {
  const ports: Ports = {};
  for (const name of names) {
    const port = await choosePort(remembered[name], taken);
    taken.add(port);
    ports[name] = port;
  }
  return ports;
};

const choosePort = async (remembered: number | undefined, taken: Set<number>): Promise<number> => {
  if (remembered !== undefined && !taken.has(remembered) && (await isFree(remembered))) return remembered;
  const highest = highestPort();
  for (let tries = 0; tries < 500; tries += 1) {
    const port = randomInt(LOWEST, highest + 1);
    if (!taken.has(port) && !WELL_KNOWN.has(port) && (await isFree(port))) return port;
  }
  throw new Error(`no free loopback port between ${LOWEST} and ${highest}: stop what is listening there`);
};
