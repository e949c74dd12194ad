export {
  HEADER,
  partsOf,
  readDelivery,
  type Envelope,
  type RawDelivery,
  type Reading,
  type ReadingLimits,
  type Source,
  type WithoutId,
} from './envelope.js';
export { detectFormat, type FormatName } from './formats/index.js';
export { readPayload, type Payload, type StoredBody } from './payload.js';
export type { Refusal, RefusalReason } from './refusal.js';
