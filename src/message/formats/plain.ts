import type { Format } from './format.js';

/** AMQP's own properties; what our relay sends. */
export const plain: Format = {
  name: 'plain',
  detect: ({ properties }) =>
    properties.messageId === undefined ? 'nothing else fits' : 'property message_id, and nothing else fits',
  read: ({ properties }) => [{ id: properties.messageId, idSource: 'props.messageId' }],
  withoutId: 'set the property message_id when publishing',
};
