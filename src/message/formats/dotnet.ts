import { isTable, tableIn, textOf, timeOf, type Format } from './format.js';

const MASSTRANSIT = /^application\/vnd\.masstransit\+json\s*(;|$)/i;

/** The first of the types is the message's own; the others are its interfaces. */
const firstText = (value: unknown): string | undefined =>
  textOf(Array.isArray(value) ? (value as unknown[])[0] : value);

/** MassTransit's envelope: all in the body. */
export const masstransit: Format = {
  name: 'masstransit',
  detect: ({ contentType }) =>
    MASSTRANSIT.test(contentType) ? 'content_type application/vnd.masstransit+json' : undefined,
  read: (parts) => {
    const found = tableIn(parts);
    if ('reason' in found) return found;
    const { messageId, messageType, sentTime, correlationId, conversationId } = found.table;
    return [
      {
        id: messageId,
        idSource: 'body.messageId',
        type: firstText(messageType),
        createdAtMs: timeOf(sentTime),
        correlationId: textOf(correlationId) ?? textOf(conversationId),
      },
    ];
  },
  withoutId: 'the envelope has no messageId',
  payload: (envelope) =>
    isTable(envelope) ? { value: envelope.message } : { fault: 'the body is no MassTransit envelope' },
};

/** MassTransit's raw JSON. A redelivery has a new id, and the first one beside it. */
export const masstransitRaw: Format = {
  name: 'masstransit-raw',
  detect: ({ headers }) => (headers.has('MT-MessageType') ? 'header MT-MessageType' : undefined),
  read: ({ headers, properties }) => {
    const name = ['MT-OriginalMessageId', 'MessageId'].find((one) => textOf(headers.get(one)) !== undefined);
    return [
      {
        id: name === undefined ? properties.messageId : headers.get(name),
        idSource: name === undefined ? 'props.messageId' : `headers.${name}`,
        type: textOf(headers.get('MT-MessageType'))?.split(';')[0],
        correlationId: textOf(headers.get('ConversationId')),
      },
    ];
  },
  withoutId: 'MassTransit sends the header MessageId, or the property message_id',
};

/** `2026-01-01 00:00:00:000000 Z`. */
const TIME_SENT = /^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d):(\d{3})\d* Z$/;

export const nservicebus: Format = {
  name: 'nservicebus',
  detect: ({ headers }) =>
    ['NServiceBus.EnclosedMessageTypes', 'NServiceBus.MessageId']
      .filter((name) => headers.has(name))
      .map((name) => `header ${name}`)[0],
  read: ({ headers, properties }) => {
    const property = textOf(properties.messageId)?.trim() ?? '';
    const sent = TIME_SENT.exec(textOf(headers.get('NServiceBus.TimeSent')) ?? '');
    return [
      {
        id: property === '' ? headers.get('NServiceBus.MessageId') : properties.messageId,
        idSource: property === '' ? 'headers.NServiceBus.MessageId' : 'props.messageId',
        // Shop.OrderPlaced, Shop.Messages, Version=1.0.0.0;Shop.IOrderEvent, …
        type: textOf(headers.get('NServiceBus.EnclosedMessageTypes'))?.split(/[,;]/)[0]?.trim(),
        createdAtMs:
          sent === null ? undefined : timeOf(`${sent[1] ?? ''}T${sent[2] ?? ''}.${sent[3] ?? ''}Z`),
        correlationId: textOf(headers.get('NServiceBus.CorrelationId')),
      },
    ];
  },
  withoutId: 'NServiceBus sends the property message_id, or the header NServiceBus.MessageId',
};

export const cap: Format = {
  name: 'cap',
  detect: ({ headers }) => (headers.has('cap-msg-id') ? 'header cap-msg-id' : undefined),
  read: ({ headers }) => [
    {
      id: headers.get('cap-msg-id'),
      idSource: 'headers.cap-msg-id',
      type: textOf(headers.get('cap-msg-name')),
      createdAtMs: timeOf(headers.get('cap-senttime')),
      correlationId: textOf(headers.get('cap-corr-id')),
    },
  ],
  withoutId: 'the header cap-msg-id is empty',
};
