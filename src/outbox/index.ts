export { migrateOutbox, type Migration } from './migrate.js';
export { listCandidates, loadRows, type Candidate, type CandidateQuery, type OutboxRow } from './claim.js';
export { checkDirectSession } from './pooler.js';
export { checkMigrated, isBusy, openSession, type OutboxSession } from './session.js';
export { countRelays, joinRelays, leaveRelays, releaseSlots, SLOTS, takeSlots } from './slots.js';
export {
  countRows,
  isWritable,
  markPublished,
  recordFailures,
  type OutboxCounts,
  type RowFailure,
} from './statements.js';
export type { OutboxEvent, WriteOptions } from './event.js';
export { InvalidEventError, type EventFault } from './fault.js';
export { inTransaction } from './transaction.js';
export {
  writeEvent,
  type OutboxParam,
  type QueryFunction,
  type Queryable,
  type WrittenEvent,
} from './write.js';
export { beginAudit, type AuditEntry } from './audit.js';
export { resolveInstant, UnusableInstant, type Instant, type RowFilter } from './filter.js';
export { readBacklog, readSlotOwners, type Backlog, type SlotOwner } from './health.js';
export { listRows, showRow, type ListedRow, type RowState, type ShownRow } from './listing.js';
export { openBareSession, openOperatorSession, type OperatorSession } from './operator.js';
export { previewPurge, purgeAudited, purgePublished, type PurgePreview } from './purge.js';
export {
  countPublishedBefore,
  previewRepair,
  repairRows,
  selectForRepair,
  type Repair,
  type RepairPreview,
} from './repair.js';
export {
  readMigrationFacts,
  readServerFacts,
  readTableFacts,
  type MigrationFacts,
  type ServerFacts,
  type TableFacts,
} from './server-facts.js';
export { readVacuumHolders, type VacuumHolder } from './vacuum.js';
