import { isTable, tableIn, textOf, type Format, type Parts } from './format.js';

const STAMP = 'X-Message-Stamp-';
const ID_STAMP = `${STAMP}Symfony\\Component\\Messenger\\Stamp\\TransportMessageIdStamp`;

/** A stamp is a JSON array of the objects of its class. */
function stampedId({ headers }: Parts): unknown {
  try {
    const stamps: unknown = JSON.parse(textOf(headers.get(ID_STAMP)) ?? '[]');
    const [first] = Array.isArray(stamps) ? (stamps as unknown[]) : [];
    return isTable(first) ? first.id : undefined;
  } catch {
    return undefined;
  }
}

/** Symfony Messenger: the class in the header type, stamps beside it. */
export const symfony: Format = {
  name: 'symfony',
  detect: ({ headers }) =>
    textOf(headers.get('type')) !== undefined && [...headers.keys()].some((name) => name.startsWith(STAMP))
      ? `header type, and headers ${STAMP}…`
      : undefined,
  read: (parts) => {
    const { headers, properties } = parts;
    const stamped = properties.messageId === undefined ? stampedId(parts) : undefined;
    return [
      {
        id: stamped ?? properties.messageId,
        idSource: stamped === undefined ? 'props.messageId' : 'headers.TransportMessageIdStamp',
        type: textOf(headers.get('type')),
      },
    ];
  },
  withoutId: 'Symfony Messenger sends no id by itself: add an AmqpStamp with the attribute message_id',
};

/** A job of Laravel's queue: all in the body; the command itself is PHP's and stays closed. */
export const laravel: Format = {
  name: 'laravel',
  detect: ({ headers }) => (isTable(headers.get('laravel')) ? 'header table laravel' : undefined),
  read: (parts) => {
    const found = tableIn(parts);
    if ('reason' in found) return found;
    const { id, uuid, displayName } = found.table;
    const own = textOf(id);
    return [
      {
        id: own ?? uuid,
        idSource: own === undefined ? 'body.uuid' : 'body.id',
        type: textOf(displayName),
      },
    ];
  },
  withoutId: 'the job has neither id nor uuid',
};
