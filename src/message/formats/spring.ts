import { textOf, type Format } from './format.js';

/** Spring AMQP: the Java class in a header, an id only where it was asked for. */
export const spring: Format = {
  name: 'spring',
  detect: ({ headers }) => (headers.has('__TypeId__') ? 'header __TypeId__' : undefined),
  read: ({ headers, properties }) => [
    {
      id: properties.messageId,
      idSource: 'props.messageId',
      type: textOf(headers.get('__TypeId__')),
    },
  ],
  withoutId:
    'Spring (header __TypeId__) sends no message_id by itself: setCreateMessageIds(true) on the message converter',
};
