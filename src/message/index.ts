export {
  HEADER,
  readDelivery,
  type Envelope,
  type RawDelivery,
  type Reading,
  type Source,
} from './envelope.js';
export { readPayload, type Payload } from './payload.js';
export type { Refusal, RefusalReason } from './refusal.js';
