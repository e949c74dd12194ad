import { textOf, type Format } from './format.js';

const PICKLED = /python-serialize|pickle/i;

/** Celery's protocol 2: the task in headers, the arguments in the body. */
export const celery: Format = {
  name: 'celery',
  detect: ({ headers }) =>
    textOf(headers.get('task')) !== undefined && headers.has('id') ? 'headers task and id' : undefined,
  read: ({ headers }) => {
    const [id, retries] = [textOf(headers.get('id')), headers.get('retries')];
    return [
      {
        // A retry keeps the id and is another request: with the id alone it would be dropped as a duplicate.
        id: id === undefined ? undefined : `${id}:${typeof retries === 'number' ? retries : 0}`,
        idSource: 'headers.id+retries',
        type: textOf(headers.get('task')),
      },
    ];
  },
  withoutId: 'the header id is empty',
  unopened: (contentType) =>
    PICKLED.test(contentType)
      ? 'the body is pickled, which is never opened: set task_serializer to json'
      : undefined,
};
