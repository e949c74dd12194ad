import { randomUUID } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { MongoClient, MongoServerError } from 'mongodb';
import { cacheFolder, findProgram } from './programs.js';
import { missingForPython, secantusFromPyPI } from './secantus.js';
import type { Place, Service } from './service.js';

/**
 * mongod where it is installed; otherwise SecantusDB, which speaks MongoDB's protocol over the same storage engine
 * and can be had from package registries: its Rust server, or its slower Python one.
 */
export const mongodb: Service = {
  name: 'mongodb',
  variable: 'MONGODB_URI',
  portNames: ['mongodb'],
  stopSignal: 'SIGTERM',

  async find() {
    const mongod = findProgram('mongod');
    if (mongod !== undefined) return { mongod };
    const rust = findProgram('secantusd-rs') ?? findProgram('secantusd-rs', [join(cacheFolder(), 'bin')]);
    if (rust !== undefined) return { rust };
    const python = findProgram('secantusd-py', [join(cacheFolder(), 'venv', 'bin')]);
    if (python !== undefined) return { python };
    return {
      what: 'a MongoDB server: mongod on PATH, or SecantusDB from PyPI (which needs python3 with venv)',
      packages: await missingForPython(),
      otherwise: 'or build the Rust server once: npx tsx stack/main.ts build (needs cargo and cmake)',
    };
  },

  provide: secantusFromPyPI,

  async prepare({ folder }, programs) {
    mkdirSync(join(folder, dataName(programs)), { recursive: true, mode: 0o700 });
  },

  async commands({ folder, ports }, programs) {
    const port = String(ports['mongodb']);
    const data = join(folder, dataName(programs));
    if (programs['mongod'] !== undefined) {
      // Loopback only and no password: with a replica set mongod wants a key file and a bootstrap for that.
      const args = ['--bind_ip', '127.0.0.1', '--port', port, '--dbpath', data, '--replSet', 'twinbox'];
      return [{ program: programs['mongod'], args, cwd: folder }];
    }
    const args = ['--host', '127.0.0.1', '--port', port, '--storage-path', data];
    // Without --sync-on-commit the Rust server loses acknowledged writes when it is killed. The Python one keeps them,
    // but with --auth it lets nobody in who could make the first user: it has loopback alone for protection.
    if (programs['rust'] !== undefined) args.push('--auth', '--sync-on-commit', '--cache-size', '512M');
    return [{ program: programs['rust'] ?? programs['python'] ?? '', args, cwd: folder }];
  },

  async setUp(place) {
    const client = new MongoClient(`${bare(place)}/?directConnection=true`, LIMITS);
    try {
      const admin = client.db('admin');
      const hello = await admin.command({ hello: 1 });
      if (hello['setName'] === undefined)
        await admin.command({ replSetInitiate: members(place) }).catch(ifAgain);
      // Before there is a user, a client from this machine may make the first one.
      const user = { createUser: 'twinbox', pwd: place.password, roles: ['root'] };
      await admin.command(user).catch(ifAgain);
    } finally {
      await client.close();
    }
  },

  async ready({ MONGODB_URI: uri = '' }) {
    const client = new MongoClient(uri, LIMITS);
    try {
      const probe = client.db().collection<{ _id: string }>('twinbox_ready');
      const _id = randomUUID();
      await probe.insertOne({ _id });
      if ((await probe.findOne({ _id })) === null)
        throw new Error('MongoDB did not give back what was inserted');
      await client.withSession(async (session) => {
        // Not withTransaction: it would try again for two minutes.
        session.startTransaction();
        await probe.deleteOne({ _id }, { session });
        await session.commitTransaction();
      });
    } finally {
      await client.close();
    }
  },

  urls: (place) => ({
    MONGODB_URI: `${bare(place, `twinbox:${place.password}@`)}/twinbox?authSource=admin&directConnection=true`,
  }),
};

const LIMITS = { serverSelectionTimeoutMS: 2_000, connectTimeoutMS: 2_000, socketTimeoutMS: 10_000 };

const bare = ({ ports }: Pick<Place, 'ports'>, login = ''): string =>
  `mongodb://${login}127.0.0.1:${ports['mongodb'] ?? 0}`;

/** mongod's files and SecantusDB's are not each other's. */
const dataName = (programs: Record<string, string>): string =>
  programs['mongod'] === undefined ? 'secantus' : 'mongod';

const members = ({ ports }: Place): object => ({
  _id: 'twinbox',
  members: [{ _id: 0, host: `127.0.0.1:${ports['mongodb'] ?? 0}` }],
});

/** Already initiated (23), the user exists (51003), or we may no longer make one because it does (13, 11600). */
const ifAgain = (error: unknown): void => {
  if (error instanceof MongoServerError && [13, 23, 51003].includes(Number(error.code))) return;
  throw error;
};
