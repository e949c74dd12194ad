import { MongoClient, type Collection, type Db } from 'mongodb';
import type { InboxDocument } from './document.js';

export interface Inbox {
  readonly client: MongoClient;
  readonly db: Db;
  /** The documents of one actor. */
  documents(actor: string): Collection<InboxDocument>;
  /** The server's time, from the host's clock and the offset that was measured within the last minute. */
  now(): Date;
  /** @throws when the server does not answer */
  ping(): Promise<void>;
  close(): Promise<void>;
}

const OFFSET_AGE_MS = 60_000;

/** The name of an actor's collection. */
export const collectionName = (actor: string): string => `inbox_${actor}`;

/**
 * Connects when it is first used. What is acknowledged is on a majority's disks.
 * (`timeoutMS` does nothing in this driver; the limits below do.)
 */
export function openInbox(uri: string, appName: string): Inbox {
  const client = new MongoClient(uri, {
    appName: Buffer.from(appName).subarray(0, 120).toString(),
    writeConcern: { w: 'majority', journal: true },
    readConcern: { level: 'majority' },
    readPreference: 'primary',
    retryWrites: true,
    ignoreUndefined: true, // an undefined field would be stored as null
    serverSelectionTimeoutMS: 5_000,
    connectTimeoutMS: 5_000,
    heartbeatFrequencyMS: 5_000,
    socketTimeoutMS: 30_000,
    waitQueueTimeoutMS: 5_000,
    maxPoolSize: 50,
  });
  const db = client.db(databaseOf(uri));
  let offsetMs = 0;
  let measuredAt = -Infinity;

  const measure = async (): Promise<void> => {
    await db.admin().command({ ping: 1 }); // opens the connection, whose time must not count
    const before = Date.now();
    const { localTime } = (await db.admin().command({ hello: 1 })) as unknown as { localTime: Date };
    const after = Date.now();
    offsetMs = localTime.getTime() - (before + after) / 2;
    measuredAt = performance.now();
  };

  return {
    client,
    db,
    documents: (actor) => db.collection<InboxDocument>(collectionName(actor)),
    now: () => {
      if (performance.now() - measuredAt > OFFSET_AGE_MS) {
        measuredAt = performance.now();
        measure().catch(() => undefined); // the last offset serves until the server answers again
      }
      return new Date(Date.now() + offsetMs);
    },
    ping: measure,
    close: () => client.close(),
  };
}

/** The database of the URI's path; `twinbox` without one, since the driver's own default is `test`. */
function databaseOf(uri: string): string {
  const path = /^mongodb(?:\+srv)?:\/\/[^/]+\/([^?]*)/.exec(uri)?.[1] ?? '';
  return path === '' ? 'twinbox' : decodeURIComponent(path);
}

/**
 * Takes, keeps or takes over the lock `name` for `leaseMs`, by the server's clock.
 * @returns whether `owner` holds it now
 */
export async function holdLock(inbox: Inbox, name: string, owner: string, leaseMs: number): Promise<boolean> {
  const locks = inbox.db.collection<{ _id: string; owner: string; until: Date }>('twinbox_lock');
  const mine = { $or: [{ owner }, { $expr: { $lte: ['$until', '$$NOW'] } }] };
  const until = { $dateAdd: { startDate: '$$NOW', unit: 'millisecond', amount: leaseMs } };
  try {
    await locks.updateOne({ _id: name, ...mine }, [{ $set: { owner: { $literal: owner }, until } }], {
      upsert: true,
    });
    return true;
  } catch (error) {
    if ((error as { code?: unknown }).code === 11_000) return false; // another's, and alive
    throw error;
  }
}

/**
 * Writes the one small document of this owner, acknowledged as every other is. A server that answers questions may still refuse
 * writes: a full quota, lost rights, no majority.
 * @throws what the server answers
 */
export async function proveWrite(inbox: Inbox, owner: string): Promise<void> {
  const probes = inbox.db.collection<{ _id: string }>('twinbox_probe');
  try {
    await probes.updateOne({ _id: owner }, { $currentDate: { at: true } }, { upsert: true });
  } catch (error) {
    // Two of the same process at once: the other one's write is proof enough.
    if ((error as { code?: unknown }).code !== 11_000) throw error;
  }
}

/** Gives the lock back, if it is still `owner`'s. */
export async function freeLock(inbox: Inbox, name: string, owner: string): Promise<void> {
  await inbox.db.collection<{ _id: string; owner: string }>('twinbox_lock').deleteOne({ _id: name, owner });
}
