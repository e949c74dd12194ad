export { migrateOutbox, type Migration } from './migrate.js';
export { countOpenRows, type OpenRows } from './open-rows.js';
export { checkMigrated, openSession, type OutboxSession } from './session.js';
export {
  countRows,
  isWritable,
  markPublished,
  recordFailures,
  selectPending,
  tryOwn,
  type OutboxCounts,
  type OutboxRow,
  type RowFailure,
} from './statements.js';
export { inTransaction, writeEvent, type OutboxEvent, type Queryable } from './write.js';
