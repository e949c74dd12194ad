import { textOf, type Format } from './format.js';

/** The id may be JSON text, in quotes. */
function unquoted(value: unknown): unknown {
  const text = textOf(value);
  if (text === undefined || !/^".*"$/s.test(text)) return text ?? value;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

/** The outbox router of Debezium Server: the id is a header, and there are no properties. */
export const debezium: Format = {
  name: 'debezium',
  detect: ({ headers, properties }) =>
    headers.has('id') && properties.messageId === undefined ? 'header id, and no message_id' : undefined,
  read: ({ headers }) => [
    {
      id: unquoted(headers.get('id')),
      idSource: 'headers.id',
      type: textOf(unquoted(headers.get('eventType'))),
    },
  ],
  withoutId: 'the header id is empty',
  // A JSON column goes out as text, and is made JSON once more.
  payload: (value) => {
    if (typeof value !== 'string') return { value };
    try {
      return { value: JSON.parse(value) as unknown };
    } catch {
      return { value };
    }
  },
};
