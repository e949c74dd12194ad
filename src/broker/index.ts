export { openConnection, type BrokerConnection, type ChannelFault, type Role } from './connection.js';
export { createConsumer, type Consumer, type ConsumerOptions, type Delivery } from './consumer.js';
export { createPublisher, type Outcome, type Publication, type Publisher } from './publisher.js';
export {
  DEAD_LETTER_EXCHANGE,
  deadLetterQueue,
  declareMailbox,
  EVENTS_EXCHANGE,
  IN_EXCHANGE,
  LETTER_AUDIT,
  mailboxQueue,
  topologyOf,
  UNROUTED,
  type ActorDeclaration,
  type Topology,
} from './topology.js';
export { brokerAccess, placeOf, vhostOf, type BrokerAccess, type BrokerSource } from './access.js';
export { visitBroker } from './visit.js';
export type { ChannelModel } from 'amqplib';
export { openManagement, type Management } from './management.js';
export { seeByDeclaring } from './passive.js';
export { planOf, type Difference, type Plan, type Seen } from './plan.js';
export { applyPlan, type Wishes } from './apply.js';
export { explain, mismatchText } from './explain.js';
export { changeLetters, type LeftLetter, type LetterChanged } from './change-letters.js';
export { eachLetter } from './each-letter.js';
export { readLetterAudit, type LetterAuditEntry, type LetterAuditLine } from './letter-audit.js';
export { isMeant, type LetterFilter } from './letter-filter.js';
export type { Letter } from './letter.js';
export { QueueHeld } from './hold.js';
export { mendHeaders } from './mend-headers.js';
export { deadLetterOf, withoutForeignHeaders } from './dead-letter.js';
export { readPublisherState, type PublisherState } from './blocked.js';
export { readDepths, type QueueDepth } from './depths.js';
