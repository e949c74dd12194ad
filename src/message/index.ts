export {
  HEADER,
  readDelivery,
  type Envelope,
  type RawDelivery,
  type Reading,
  type Refusal,
  type RefusalReason,
  type Source,
} from './envelope.js';
export { readPayload, type Payload } from './payload.js';
