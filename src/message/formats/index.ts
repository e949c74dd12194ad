import { celery } from './celery.js';
import { cloudeventsBinary, cloudeventsStructured } from './cloudevents.js';
import { debezium } from './debezium.js';
import { cap, masstransit, masstransitRaw, nservicebus } from './dotnet.js';
import type { Format, Parts } from './format.js';
import { laravel, symfony } from './php.js';
import { plain } from './plain.js';
import { spring } from './spring.js';

/** The first that fits counts: what says plainly what it is comes before what is known by a common name. */
const FORMATS: readonly Format[] = [
  cloudeventsStructured,
  cloudeventsBinary,
  masstransit,
  masstransitRaw,
  nservicebus,
  cap,
  celery,
  laravel,
  symfony,
  spring,
  debezium,
];

export interface Detected {
  readonly format: Format;
  readonly why: string;
}

export function detectFormat(parts: Parts): Detected {
  for (const format of FORMATS) {
    const why = format.detect(parts);
    if (why !== undefined) return { format, why };
  }
  return { format: plain, why: plain.detect(parts) ?? '' };
}

/** @returns plain for a name that an older or newer version wrote */
export const formatNamed = (name: string): Format => FORMATS.find((format) => format.name === name) ?? plain;

export { textOf, timestampMs, type Description, type Format, type FormatName, type Parts } from './format.js';
