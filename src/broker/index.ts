export { openConnection, type BrokerConnection, type ChannelFault, type Role } from './connection.js';
export { createConsumer, type Consumer, type ConsumerOptions, type Delivery } from './consumer.js';
export { createPublisher, type Outcome, type Publication, type Publisher } from './publisher.js';
export {
  DEAD_LETTER_EXCHANGE,
  deadLetterQueue,
  declareMailbox,
  EVENTS_EXCHANGE,
  mailboxQueue,
} from './topology.js';
export { deadLetterOf, withoutForeignHeaders } from './dead-letter.js';
