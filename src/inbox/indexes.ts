import type { CreateIndexesOptions, Document, IndexSpecification } from 'mongodb';
import { ConfigurationError } from '../runtime/errors.js';
import { UNFINISHED } from './document.js';
import { collectionName, type Inbox } from './store.js';

interface Index {
  readonly name: string;
  readonly keys: IndexSpecification;
  readonly options?: CreateIndexesOptions;
}

const INDEXES: readonly Index[] = [
  { name: 'messageId', keys: { messageId: 1 }, options: { unique: true } },
  { name: 'lookAt', keys: { lookAt: 1 }, options: { partialFilterExpression: UNFINISHED } },
  { name: 'key_sequence', keys: { key: 1, sequence: 1 }, options: { partialFilterExpression: UNFINISHED } },
  { name: 'createdAt', keys: { createdAt: 1 } },
  {
    name: 'dead',
    keys: { 'lastError.group': 1, deadAt: 1 },
    options: { partialFilterExpression: { deadAt: { $exists: true } } },
  },
];
/** Single field: on a compound index `expireAfterSeconds` does nothing, and says nothing. */
const TTL = 'processedAt';

interface ListedIndex {
  name: string;
  key: Document;
  expireAfterSeconds?: number;
}

export interface IndexChange {
  readonly actor: string;
  readonly change: string;
}

/**
 * Brings the indexes of every actor to what this version needs, and the retention to `retentionSeconds`.
 * Another value for an index that is there is changed by collMod; createIndex would refuse it.
 * @throws {ConfigurationError} when an index of our name is something else
 */
export async function migrateInbox(
  inbox: Inbox,
  actors: readonly string[],
  retentionSeconds: number,
): Promise<IndexChange[]> {
  const changes: IndexChange[] = [];
  for (const actor of actors) {
    const listed = await list(inbox, actor);
    const documents = inbox.documents(actor);
    for (const { name, keys, options } of INDEXES) {
      if (listed.some((index) => index.name === name)) continue;
      await documents.createIndex(keys, { name, ...options }, {});
      changes.push({ actor, change: `index ${name} made` });
    }
    const ttl = ttlOf(listed, actor);
    if (ttl === undefined) {
      await documents.createIndex(
        { processedAt: 1 },
        { name: TTL, expireAfterSeconds: retentionSeconds },
        {},
      );
      changes.push({ actor, change: `retention set to ${retentionSeconds} s` });
    } else if (ttl !== retentionSeconds) {
      await inbox.db.command({
        collMod: collectionName(actor),
        index: { name: TTL, expireAfterSeconds: retentionSeconds },
      });
      changes.push({ actor, change: `retention changed from ${ttl} s to ${retentionSeconds} s` });
    }
  }
  return changes;
}

/**
 * The indexes are there and the retention is the configured one.
 * @throws {ConfigurationError} naming what is missing or differs, and the fix
 */
export async function checkInbox(
  inbox: Inbox,
  actors: readonly string[],
  retentionSeconds: number,
): Promise<void> {
  const faults: string[] = [];
  for (const actor of actors) {
    const listed = await list(inbox, actor);
    const missing = INDEXES.filter(({ name }) => !listed.some((index) => index.name === name)).map(
      ({ name }) => name,
    );
    if (missing.length > 0) faults.push(`${collectionName(actor)} lacks the indexes ${missing.join(', ')}`);
    const ttl = ttlOf(listed, actor);
    if (ttl === undefined) faults.push(`${collectionName(actor)} has no retention yet`);
    else if (ttl !== retentionSeconds) {
      faults.push(
        `${collectionName(actor)} keeps processed messages ${ttl} s, INBOX_RETENTION_SECONDS says ${retentionSeconds}`,
      );
    }
  }
  if (faults.length > 0) throw new ConfigurationError(`${faults.join('; ')}: run \`twinbox migrate\``);
}

async function list(inbox: Inbox, actor: string): Promise<ListedIndex[]> {
  try {
    return (await inbox.documents(actor).listIndexes().toArray()) as ListedIndex[];
  } catch (error) {
    if ((error as { code?: unknown }).code === 26) return []; // NamespaceNotFound: nothing was recorded yet
    throw error;
  }
}

function ttlOf(listed: readonly ListedIndex[], actor: string): number | undefined {
  const index = listed.find(
    ({ name, key }) => name === TTL || (Object.keys(key).length === 1 && 'processedAt' in key),
  );
  if (index === undefined) return undefined;
  const single = Object.keys(index.key).join() === 'processedAt';
  if (!single || index.name !== TTL || index.expireAfterSeconds === undefined) {
    throw new ConfigurationError(
      `${collectionName(actor)}: the index ${index.name} on (${Object.keys(index.key).join(', ')}) stands where the one that expires processed messages belongs (${TTL}, on processedAt alone, with expireAfterSeconds): drop it, then run \`twinbox migrate\``,
    );
  }
  return index.expireAfterSeconds;
}
