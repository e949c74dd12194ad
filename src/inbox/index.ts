export { countMessages, type InboxCounts } from './counts.js';
export type { DeadReason, InboxDocument, LastError, Run, Step, StoredDocument } from './document.js';
export { checkInbox, migrateInbox, type IndexChange } from './indexes.js';
export { DEDUPE_WINDOW_FIX, dedupeWindowFault, type DedupeWindow } from './retention.js';
export { waitForInbox } from './ready.js';
export { judgeInsert, record, type Recorded } from './record.js';
export {
  claim,
  fail,
  finish,
  finishedBy,
  finishWith,
  handBack,
  heartbeat,
  holdsLease,
  LeaseLost,
  readClaim,
  rememberStep,
  showProgress,
  type Claim,
  type ClaimRequest,
  type FailureEnd,
  type KeepBody,
} from './runs.js';
export { collectionName, freeLock, holdLock, openInbox, proveWrite, type Inbox } from './store.js';
export { bury, lookAtAll, lookLater, raiseGeneration, selectDue, type DueDocument } from './sweep.js';
