import { expect } from 'vitest';
import { InvalidEventError, writeEvent, type OutboxEvent, type OutboxParam } from '../../src/outbox/index.js';

export interface Sent {
  readonly text: string;
  readonly params: OutboxParam[];
}

/** What the database answers. */
export const ROW = { eventId: '5e0f1a55-6f8b-4f0a-9a53-0f4b9a3c9f00', id: '1' };

/** What would be sent for the event; a refusal after something was sent fails. */
export async function write(over: object, maxBodyBytes?: number): Promise<Sent> {
  const sent: Sent[] = [];
  const tx = (text: string, params: OutboxParam[]): Promise<unknown> => {
    sent.push({ text, params });
    return Promise.resolve([ROW]);
  };
  const event = { type: 'order.placed', body: {}, ...over } as OutboxEvent;
  try {
    await writeEvent(tx, event, maxBodyBytes === undefined ? {} : { maxBodyBytes });
  } catch (error) {
    expect(sent).toEqual([]);
    throw error;
  }
  expect(sent).toHaveLength(1);
  return sent[0]!;
}

export async function refusal(over: object, maxBodyBytes?: number): Promise<InvalidEventError> {
  const error = await write(over, maxBodyBytes).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(InvalidEventError);
  return error as InvalidEventError;
}

/** The faults as "at problem". */
export const faults = async (over: object, maxBodyBytes?: number): Promise<string[]> =>
  (await refusal(over, maxBodyBytes)).faults.map(({ at, problem }) => `${at} ${problem}`);

export const bodyOf = ({ params }: Sent): Buffer => params[4] as Buffer;
export const headersOf = ({ params }: Sent): Record<string, unknown> =>
  JSON.parse(params[6] as string) as Record<string, unknown>;
