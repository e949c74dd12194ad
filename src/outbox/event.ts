import { types } from 'node:util';
import { DEFAULT_MAX_BODY_BYTES, LARGEST_MAX_BODY_BYTES } from '../runtime/limits.js';
import { encodeBody } from './event-body.js';
import { headerFaults } from './event-headers.js';
import { InvalidEventError, kindOf, textFault, type EventFault } from './fault.js';

export interface OutboxEvent {
  /** What happened, as `order.placed`; also the routing key unless `routingKey` is given. At most 255 bytes of UTF-8. */
  readonly type: string;
  /** A Buffer (or another Uint8Array) is sent as it is; everything else as JSON. JSON text you have: `Buffer.from(text)`. */
  readonly body: unknown;
  /** Events of one key keep their order. At most 1,024 bytes. Not together with `publishAfter`. */
  readonly key?: string;
  /** A UUID of your own; default: made by Postgres. */
  readonly eventId?: string;
  /** At most 255 bytes. */
  readonly routingKey?: string;
  /** Default `application/json`. At most 255 bytes. */
  readonly contentType?: string;
  /** At most 64, each of at most 1,024 bytes with its name. */
  readonly headers?: Readonly<Record<string, string | number | boolean>>;
  /** Not published before. Not together with `key`. */
  readonly publishAfter?: Date;
}

export interface WriteOptions {
  /** Largest body, in bytes; default 8 MiB. Must not be above MAX_BODY_BYTES of the relay, which parks what is larger. */
  readonly maxBodyBytes?: number;
}

const KNOWN = 'type, body, key, eventId, routingKey, contentType, headers, publishAfter';
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
/** The last millisecond of the year 9999: what comes after has no common spelling. */
const LAST_MS = 253_402_300_799_999;

/**
 * Everything about an event that can be judged without a database, in one go.
 * @returns the bytes of its body
 * @throws {InvalidEventError} with every fault
 * @throws {RangeError} `maxBodyBytes` is no limit
 */
export function checkEvent(event: OutboxEvent, options: WriteOptions = {}): Buffer {
  const { maxBodyBytes = DEFAULT_MAX_BODY_BYTES } = options;
  if (!Number.isInteger(maxBodyBytes) || maxBodyBytes < 1 || maxBodyBytes > LARGEST_MAX_BODY_BYTES)
    throw new RangeError(`maxBodyBytes must be a whole number from 1 to ${LARGEST_MAX_BODY_BYTES} (bytes)`);
  if (typeof event !== 'object' || (event as unknown) === null)
    throw new InvalidEventError([
      { at: 'the event', problem: `is ${kindOf(event)}`, fix: 'give an object with type and body' },
    ]);
  const encoded = encodeBody(event.body);
  const faults = [
    ...unknownFields(event),
    ...textFaults(event),
    ...idFault(event.eventId),
    ...delayFaults(event),
    ...(isGiven(event.headers) ? headerFaults(event.headers) : []),
    ...('faults' in encoded ? encoded.faults : tooLarge(encoded.bytes, maxBodyBytes)),
  ];
  if (faults.length > 0 || 'faults' in encoded) throw new InvalidEventError(faults);
  return encoded.bytes;
}

/** `publish_after` instead of `publishAfter` would send at once what was to wait. */
function unknownFields(event: OutboxEvent): EventFault[] {
  const known = KNOWN.split(', ');
  return Object.keys(event)
    .filter((name) => !known.includes(name))
    .map((name) => ({
      at: JSON.stringify(name.slice(0, 60)),
      problem: 'is no field of an event',
      fix: `use ${KNOWN}`,
    }));
}

function textFaults({ type, routingKey, key, contentType }: OutboxEvent): EventFault[] {
  return [
    textFault('type', type, 255),
    isGiven(routingKey) ? textFault('routingKey', routingKey, 255) : undefined,
    isGiven(key) ? textFault('key', key, 1_024) : undefined,
    isGiven(contentType) ? textFault('contentType', contentType, 255) : undefined,
  ].filter((fault) => fault !== undefined);
}

function idFault(eventId: unknown): EventFault[] {
  if (!isGiven(eventId) || (typeof eventId === 'string' && UUID.test(eventId))) return [];
  return [
    {
      at: 'eventId',
      problem: 'is not a UUID',
      fix: 'write one such as randomUUID() of node:crypto makes, or leave it out',
    },
  ];
}

function delayFaults({ publishAfter, key }: OutboxEvent): EventFault[] {
  if (!isGiven(publishAfter)) return [];
  const faults: EventFault[] = [];
  if (!types.isDate(publishAfter))
    faults.push({ at: 'publishAfter', problem: `is ${kindOf(publishAfter)}`, fix: 'give a Date' });
  else if (!(publishAfter.getTime() >= 0 && publishAfter.getTime() <= LAST_MS))
    faults.push({
      at: 'publishAfter',
      problem: 'is not a valid time from 1970 to 9999',
      fix: 'give a valid Date; new Date(…) takes milliseconds',
    });
  if (isGiven(key))
    faults.push({
      at: 'publishAfter',
      problem: 'is given together with key, and would hold back every later event of that key',
      fix: 'leave out one of the two',
    });
  return faults;
}

function tooLarge(body: Buffer, maxBodyBytes: number): EventFault[] {
  if (body.length <= maxBodyBytes) return [];
  return [
    {
      at: 'body',
      problem: `has ${body.length} bytes, more than ${maxBodyBytes}`,
      fix: 'store it elsewhere and send a reference, or raise maxBodyBytes together with MAX_BODY_BYTES of the relay',
    },
  ];
}

/** null stands for "not given" in rows and in JSON. */
function isGiven<T>(value: T): value is NonNullable<T> {
  return value !== undefined && value !== null;
}
