import { IllegalOperationError, type ConfirmChannel, type Options } from 'amqplib';
import type { ChannelFault, Role } from './connection.js';
import { corkOf } from './cork.js';
import { declareExchange } from './topology.js';

/** What became of one publish. Only `confirmed` means that a queue holds the message. */
export type Outcome =
  | { readonly kind: 'confirmed' }
  /** Confirmed by the broker, but no queue is bound for it. */
  | { readonly kind: 'returned'; readonly detail: string }
  | { readonly kind: 'nacked' }
  /** The client library threw: nothing left this process, and never will in this form. */
  | { readonly kind: 'refused'; readonly detail: string }
  /** Sent, and no answer: stored or not. `closedWith` is the reply code when the broker closed the channel. */
  | { readonly kind: 'unknown'; readonly detail: string; readonly closedWith?: number }
  /** There was no open channel. */
  | { readonly kind: 'not-sent' };

export interface Publication {
  readonly exchange: string;
  readonly routingKey: string;
  readonly body: Buffer;
  /** What identifies it among those in flight. */
  readonly messageId: string;
  readonly options: Omit<Options.Publish, 'mandatory' | 'persistent'>;
}

export interface Publisher {
  /** For `openConnection`. */
  readonly role: Role<ConfirmChannel>;
  /** Mandatory, persistent, confirmed. Never rejects. The ids in flight must differ. */
  publish(publication: Publication): Promise<Outcome>;
  /** There is an open channel. */
  ready(): boolean;
}

interface InFlight {
  /** On the wire it bears another id than here. */
  readonly anonymous: boolean;
  returned?: string;
  settle(outcome: Outcome): void;
}

/**
 * A confirming publisher. `basic.return` of a message comes before its ack on the same channel, so a return
 * noted under the id in flight turns that ack into `returned`.
 */
export function createPublisher(options: {
  readonly name: string;
  readonly confirmTimeoutMs: number;
  /** The broker blocks publishers: it has the messages and will answer, however long that takes. */
  readonly blocked?: () => boolean;
}): Publisher {
  const inFlight = new Map<string, InFlight>();
  let channel: ConfirmChannel | undefined;
  let together: () => void = () => undefined;

  const down = (fault: ChannelFault | undefined): void => {
    channel = undefined;
    const outcome: Outcome = {
      kind: 'unknown',
      detail: fault?.message ?? 'the channel was closed before the confirm',
      ...(fault?.code === undefined ? {} : { closedWith: fault.code }),
    };
    for (const entry of [...inFlight.values()]) entry.settle(outcome);
  };

  const setup = async (fresh: ConfirmChannel): Promise<void> => {
    await declareExchange(fresh);
    fresh.on('return', (message) => {
      const { replyCode, replyText, routingKey } = message.fields as unknown as {
        replyCode: number;
        replyText: string;
        routingKey: string;
      };
      const own = inFlight.get(String(message.properties.messageId));
      // A dead letter keeps the id it came with, which may be none or another's: it may be any of those.
      const returned =
        own === undefined ? [...inFlight.values()].filter(({ anonymous }) => anonymous) : [own];
      for (const entry of returned) {
        entry.returned = `${replyCode} ${replyText}: no queue is bound for ${routingKey}`;
      }
    });
    channel = fresh;
    together = corkOf(fresh);
  };

  const publish = ({
    exchange,
    routingKey,
    body,
    messageId,
    options: properties,
  }: Publication): Promise<Outcome> => {
    const open = channel;
    if (open === undefined) return Promise.resolve({ kind: 'not-sent' });
    if (inFlight.has(messageId))
      return Promise.resolve({ kind: 'refused', detail: `message ${messageId} is in flight already` });
    return new Promise<Outcome>((resolve) => {
      const settle = (outcome: Outcome): void => {
        clearTimeout(timer);
        // The late answer to an earlier publish of this id must not take the place of the one in flight now.
        if (inFlight.get(messageId) === entry) inFlight.delete(messageId);
        resolve(outcome);
      };
      const late = (): void => {
        if (options.blocked?.() === true) timer = setTimeout(late, options.confirmTimeoutMs);
        else settle({ kind: 'unknown', detail: `no confirm within ${options.confirmTimeoutMs} ms` });
      };
      let timer = setTimeout(late, options.confirmTimeoutMs);
      const anonymous = 'messageId' in properties && properties.messageId !== messageId;
      const entry: InFlight = { anonymous, settle };
      inFlight.set(messageId, entry);
      try {
        together();
        open.publish(
          exchange,
          routingKey,
          body,
          { messageId, ...properties, mandatory: true, persistent: true },
          (error: Error | null) => {
            // A closed channel is told by `down`, which knows what the broker said; it may come a moment later.
            if (error !== null && error.message !== 'message nacked') return;
            settle(
              error !== null
                ? { kind: 'nacked' }
                : entry.returned === undefined
                  ? { kind: 'confirmed' }
                  : { kind: 'returned', detail: entry.returned },
            );
          },
        );
      } catch (error) {
        settle(
          error instanceof IllegalOperationError
            ? { kind: 'not-sent' }
            : { kind: 'refused', detail: (error as Error).message },
        );
      }
    });
  };

  return {
    role: { name: options.name, confirm: true, setup, down },
    publish,
    ready: () => channel !== undefined,
  };
}
