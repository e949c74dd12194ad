import { openCatalog } from '../actor/index.js';
import { migrateInbox, openInbox } from '../inbox/index.js';
import { migrateOutbox } from '../outbox/index.js';
import { readConfig } from '../runtime/config.js';

/**
 * Brings Postgres and MongoDB to what this version needs; safe at every deploy, and beside running processes.
 * @returns a line for each thing that was done
 * @throws {ConfigurationError} for settings that are missing, or an index that stands in the way
 */
export async function migrate(env: NodeJS.ProcessEnv): Promise<string[]> {
  const config = readConfig(env, ['DATABASE_URL', 'MONGODB_URI'], { process: 'migrate' });
  const actors = (await openCatalog(config.TWINBOX_PROCESSORS)).map(({ name }) => name);
  const migrations = await migrateOutbox(config.DATABASE_URL);
  const inbox = openInbox(config.MONGODB_URI, 'twinbox migrate');
  try {
    const changes = await migrateInbox(inbox, actors, config.INBOX_RETENTION_SECONDS);
    return [
      ...migrations.map(
        ({ name, applied }) => `postgres  ${name} ${applied ? 'applied' : 'was applied before'}`,
      ),
      ...changes.map(({ actor, change }) => `mongodb   inbox of ${actor}: ${change}`),
      ...(changes.length === 0
        ? [`mongodb   the inboxes of ${actors.join(', ')} are as they should be`]
        : []),
    ];
  } finally {
    await inbox.close();
  }
}
