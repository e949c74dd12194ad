import {
  badEnvelope,
  isTable,
  tableIn,
  textOf,
  timeOf,
  type Description,
  type Format,
  type Parts,
} from './format.js';

// The CloudEvents SDK is not used: it makes up an id where there is none, which no second delivery would share.

const STRUCTURED = /^application\/cloudevents(-batch)?(\+json)?\s*(;|$)/i;
const WITHOUT_ID = 'CloudEvents are identified by source and id together: send both';

/** Two senders may use the same id: the source belongs to it. As JSON text, so that no two pairs look alike. */
function identify(source: unknown, id: unknown): string | undefined {
  const [from, own] = [textOf(source), textOf(id)];
  return from === undefined || own === undefined || own.trim() === ''
    ? undefined
    : JSON.stringify([from, own]);
}

function describe(event: Readonly<Record<string, unknown>>, idSource: string): Description {
  return {
    id: identify(event.source, event.id),
    idSource,
    type: textOf(event.type),
    key: textOf(event.partitionkey),
    createdAtMs: timeOf(event.time),
    traceparent: textOf(event.traceparent),
  };
}

/** All in the body: application/cloudevents+json, or a batch of them. */
export const cloudeventsStructured: Format = {
  name: 'cloudevents-structured',
  detect: ({ contentType }) =>
    STRUCTURED.test(contentType) ? `content_type ${contentType.split(';')[0] ?? ''}` : undefined,
  read: (parts) => {
    if (!parts.contentType.toLowerCase().includes('cloudevents-batch')) {
      const found = tableIn(parts);
      return 'reason' in found ? found : [describe(found.table, 'body.source+id')];
    }
    const json = parts.json();
    if ('fault' in json) return badEnvelope(json.fault);
    if (!Array.isArray(json.value) || json.value.length === 0 || !json.value.every(isTable))
      return badEnvelope('the batch is no JSON array of events');
    return json.value.map((event: Readonly<Record<string, unknown>>) => ({
      ...describe(event, 'body.source+id'),
      body: Buffer.from(JSON.stringify(event)),
    }));
  },
  withoutId: WITHOUT_ID,
  payload: (event) => {
    if (!isTable(event)) return { fault: 'the body is no CloudEvent' };
    const encoded = event.data_base64;
    if (encoded === undefined) return { value: event.data };
    if (typeof encoded !== 'string') return { fault: 'data_base64 is no text' };
    const text = textOf(Buffer.from(encoded, 'base64'));
    try {
      return { value: JSON.parse(text ?? '') as unknown };
    } catch {
      return { fault: 'data_base64 is no JSON in UTF-8' };
    }
  },
};

const NAMES = ['source', 'id', 'type', 'time', 'partitionkey', 'traceparent'];

/** The attributes of a binary event; both separators are in use, one in a message. */
function attributes({ headers }: Parts): Readonly<Record<string, unknown>> | undefined {
  const separator = [':', '_'].find((one) => headers.has(`cloudEvents${one}specversion`));
  if (separator === undefined) return undefined;
  return Object.fromEntries(NAMES.map((name) => [name, headers.get(`cloudEvents${separator}${name}`)]));
}

/** The attributes in headers, the data in the body. */
export const cloudeventsBinary: Format = {
  name: 'cloudevents-binary',
  detect: (parts) => (attributes(parts) === undefined ? undefined : 'header cloudEvents:specversion'),
  read: (parts) => [describe(attributes(parts) ?? {}, 'headers.source+id')],
  withoutId: WITHOUT_ID,
};
