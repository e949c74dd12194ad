import { randomUUID } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { findProgram } from './programs.js';
import type { Service } from './service.js';

export const redis: Service = {
  name: 'redis',
  variable: 'REDIS_URL',
  portNames: ['redis'],
  stopSignal: 'SIGTERM',

  async find() {
    const server = findProgram('redis-server');
    return server === undefined ? { what: 'redis-server', packages: ['redis-server'] } : { server };
  },

  async prepare({ folder, ports, password }) {
    mkdirSync(join(folder, 'data'), { recursive: true, mode: 0o700 });
    const lines = [
      'bind 127.0.0.1',
      `port ${ports['redis'] ?? 0}`,
      `requirepass ${password}`,
      `dir ${join(folder, 'data')}`,
      'daemonize no',
      // Snapshots alone lose everything since the last one when the process is killed; the log loses nothing then.
      'save ""',
      'appendonly yes',
      'appendfsync everysec',
      'maxmemory-policy noeviction',
    ];
    writeFileSync(join(folder, 'redis.conf'), `${lines.join('\n')}\n`, { mode: 0o600 });
  },

  async commands({ folder }, programs) {
    return [
      { program: programs['server'] ?? '', args: [join(folder, 'redis.conf')], cwd: folder, hidesMark: true },
    ];
  },

  async ready({ REDIS_URL: url = '' }) {
    const client = new Redis(url, {
      lazyConnect: true,
      connectTimeout: 2_000,
      commandTimeout: 2_000,
      maxRetriesPerRequest: 0,
      retryStrategy: () => null,
    });
    client.on('error', () => undefined);
    try {
      await client.connect();
      const key = `twinbox:ready:${randomUUID()}`;
      await client.set(key, 'yes', 'EX', 10);
      if ((await client.get(key)) !== 'yes') throw new Error('Redis did not give back what was set');
      await client.del(key);
    } finally {
      client.disconnect();
    }
  },

  urls: ({ ports, password }) => ({ REDIS_URL: `redis://:${password}@127.0.0.1:${ports['redis'] ?? 0}/0` }),
};
