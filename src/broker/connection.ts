import type { Channel, ChannelModel, ConfirmChannel } from 'amqplib';
import { ConfigurationError, describe } from '../runtime/errors.js';
import { sparsely, type Log } from '../runtime/log.js';
import { bounded, pause, TimeoutError } from '../runtime/loop.js';
import { backoffMs } from '../runtime/retry.js';
import type { BrokerSource } from './access.js';
import { createDialer, destroy, socketOf, type Dialled } from './dial.js';
import { explain } from './explain.js';

/** One duty on the connection, with a channel of its own. */
export interface Role<C extends Channel = Channel> {
  readonly name: string;
  readonly confirm: boolean;
  /** Runs again on a fresh channel after every loss. What it throws closes the channel and is tried again. */
  setup(channel: C): Promise<void>;
  /** The channel is gone; `error` is what the broker said, where it said something. */
  down?(error: ChannelFault | undefined): void;
}

/** Reply code and text of a channel that the broker closed. */
export interface ChannelFault {
  readonly code?: number;
  /** The call that it is about, by the protocol's numbers. */
  readonly classId?: number;
  readonly methodId?: number;
  readonly message: string;
}

export interface BrokerConnection {
  /** What the broker is for this process now; undefined when all is well. */
  fault(): string | undefined;
  /** The broker blocks publishers (memory or disk alarm): its reason. */
  blocked(): string | undefined;
  close(): Promise<void>;
}

export interface ConnectionOptions {
  /** Asked anew at each connecting where it is a function. */
  readonly url: BrokerSource;
  /** Shown in the broker's list of connections. */
  readonly name: string;
  readonly log: Log;
  readonly roles: readonly Role<never>[];
  /**
   * Something that a role declares exists and differs, and the role has never been up: no retry will mend that. Without
   * this it is tried again all the same, and told in the log once a minute.
   */
  readonly onMismatch?: (error: ConfigurationError) => void;
}

const CONNECT_MS = 8_000;
const SETUP_MS = 10_000;
const CLOSE_MS = 2_000;
const STABLE_MS = 30_000;
/** From one dial to the next at the least, where the connection was whole in between. */
const SPACING_MS = 1_000;
const BACKOFF = { firstMs: 200, capMs: 10_000 };
/** A refusal stays as it is until somebody acts. */
const REFUSAL_LOG_MS = 60_000;

/**
 * Keeps one connection and the channel of every role alive until `close`. The library's own recovery repairs
 * connections but never channels or deleted queues, and pooled managers ack on the wrong channel after a
 * reconnect: both lose messages. State follows 'close' alone: a restart of the broker emits nothing else.
 */
export function openConnection(options: ConnectionOptions): BrokerConnection {
  const { name, log, roles } = options;
  const dial = createDialer(options.url);
  const stopping = new AbortController();
  const stopped = (): boolean => stopping.signal.aborted;
  let current: ChannelModel | undefined;
  let blockedBy: string | undefined;
  let fault: string | undefined = 'not connected yet';
  const upRoles = new Set<string>();
  const everUp = new Set<string>();
  /** Set up on the last connection. */
  const upSince = new Set<string>();
  /** Why the broker refuses to set a role up. */
  const refusals = new Map<string, string>();
  const rarely = sparsely(REFUSAL_LOG_MS);
  const channels = new Set<Channel>();

  const runConnection = async ({ model, place }: Dialled): Promise<void> => {
    if (stopped()) {
      destroy(model);
      return;
    }
    const gone = new AbortController();
    // In the same tick as the connection: an 'error' that nobody hears ends the process.
    // 501 and 502 close the whole connection: what the broker said of it counts for each channel on it.
    let said: ChannelFault | undefined;
    model.on('error', (error: Error & { code?: number }) => {
      said = faultOf(error);
      log.warn({ event: 'broker.error', err: error }, 'the broker connection failed');
    });
    model.on('blocked', (reason: string) => {
      blockedBy = reason;
      log.warn({ event: 'broker.blocked', reason }, 'the broker blocks publishers');
    });
    model.on('unblocked', () => {
      blockedBy = undefined;
      log.info({ event: 'broker.unblocked' }, 'the broker takes messages again');
    });
    // The socket's own 'close' as well: a connection that is destroyed while it closes emits nothing any more.
    const closed = new Promise<void>((resolve) => {
      model.on('close', () => resolve());
      socketOf(model).once('close', () => resolve());
    });
    void closed.then(() => gone.abort());
    current = model;
    fault = undefined;
    upSince.clear();
    log.info({ event: 'broker.connected', place }, 'connected to the broker');
    const running = roles.map((role) => runRole(model, role as Role, gone.signal, () => said));
    await closed;
    current = undefined;
    blockedBy = undefined;
    await Promise.all(running);
  };

  const runRole = async (
    model: ChannelModel,
    role: Role,
    gone: AbortSignal,
    said: () => ChannelFault | undefined,
  ): Promise<void> => {
    for (let failures = 0; !gone.aborted && !stopped();) {
      const since = Date.now();
      try {
        const fault = await holdChannel(model, role, gone, channels, said, () => {
          upRoles.add(role.name);
          everUp.add(role.name);
          upSince.add(role.name);
          refusals.delete(role.name);
        });
        if (fault !== undefined)
          log.warn(
            { event: 'broker.channel.closed', role: role.name, code: fault.code, reason: fault.message },
            `the channel of ${role.name} was closed (${explain(fault)?.text ?? fault.message}); opening another`,
          );
      } catch (error) {
        if (current === model) tellFailure(role, error);
        // A call without an answer: the connection is half-open or wedged, whole.
        if (error instanceof TimeoutError) destroy(model);
      }
      upRoles.delete(role.name);
      failures = Date.now() - since > STABLE_MS ? 1 : failures + 1;
      await pause(backoffMs(failures, BACKOFF, Math.random()), AbortSignal.any([gone, stopping.signal]));
    }
  };

  const tellFailure = (role: Role, error: unknown): void => {
    const refusal = explain(error);
    const text = `cannot set up ${role.name}: ${refusal?.text ?? describe(error)}`;
    const fields = { event: 'broker.role.failed', role: role.name, err: error };
    if (refusal === undefined) {
      refusals.delete(role.name);
      log.warn(fields, text);
      return;
    }
    refusals.set(role.name, text);
    rarely(text, () => log.error(fields, `${text} (tried again; told once a minute)`));
    if (refusal.kind === 'mismatch' && !everUp.has(role.name))
      options.onMismatch?.(new ConfigurationError(refusal.text));
  };

  const run = async (): Promise<void> => {
    for (let failures = 0; !stopped();) {
      const since = Date.now();
      try {
        await runConnection(await dial(name, CONNECT_MS, stopped));
        fault = 'the connection to the broker is gone';
        if (!stopped()) log.warn({ event: 'broker.gone' }, fault);
      } catch (error) {
        fault = `the broker cannot be reached: ${describe(error)}`;
        log.warn({ event: 'broker.unreachable', err: error }, fault);
      }
      const lastedMs = Date.now() - since;
      const wasUp = roles.length > 0 && roles.every((role) => upSince.has(role.name));
      failures = wasUp || lastedMs > STABLE_MS ? 1 : failures + 1;
      // One that is set up and falls at the first delivery again and again (headers that the client library cannot
      // decode) ends by the delivery limit: soon, but not at full speed.
      const waitMs = backoffMs(failures, BACKOFF, Math.random());
      await pause(wasUp ? Math.max(waitMs, SPACING_MS - lastedMs) : waitMs, stopping.signal);
    }
  };
  const running = run();

  return {
    fault: () =>
      fault ??
      roles
        .filter((role) => !upRoles.has(role.name))
        .map(({ name: role }) => refusals.get(role) ?? `${role} is not attached to the broker`)[0],
    blocked: () => blockedBy,
    close: async () => {
      stopping.abort();
      // One by one first: the broker closes a connection past acks that it has not looked at yet.
      const answered = await Promise.all([...channels].map(closeQuietly));
      const model = current;
      if (model !== undefined) {
        // A broker that leaves one close unanswered is not asked for another.
        if (!answered.every(Boolean)) destroy(model);
        else await bounded('close', CLOSE_MS, model.close()).catch(() => destroy(model));
      }
      await running;
    },
  };
}

/** Opens the role's channel, and resolves when it is closed, however that came, with what the broker said. */
async function holdChannel(
  model: ChannelModel,
  role: Role,
  gone: AbortSignal,
  channels: Set<Channel>,
  said: () => ChannelFault | undefined,
  up: () => void,
): Promise<ChannelFault | undefined> {
  const opening: Promise<Channel> = role.confirm ? model.createConfirmChannel() : model.createChannel();
  const lost = new Promise<never>((_, reject) => {
    gone.addEventListener('abort', () => reject(new Error('the connection is gone')), { once: true });
  });
  lost.catch(() => undefined);
  // A connection that was destroyed answers no call, and rejects none.
  const channel = await bounded(
    `opening a channel for ${role.name}`,
    SETUP_MS,
    Promise.race([opening, lost]),
  );
  channels.add(channel);
  let fault: ChannelFault | undefined;
  const closed = new Promise<void>((resolve) => {
    gone.addEventListener('abort', () => resolve(), { once: true });
    // A channel whose 'error' nobody hears takes the whole connection with it.
    channel.on('error', (error: Error & { code?: number }) => {
      fault = faultOf(error);
    });
    channel.on('handler-error', (error: Error) => {
      fault = { message: error.message };
      resolve();
    });
    channel.on('close', () => resolve());
    channel.on('cancel', () => {
      fault = { message: 'the broker cancelled the consumer (its queue was deleted or moved)' };
      resolve();
    });
  });
  try {
    await bounded(
      `setting up ${role.name}`,
      SETUP_MS,
      Promise.race([
        role.setup(channel),
        closed.then(() =>
          Promise.reject(Object.assign(new Error('the channel was closed during its set-up'), fault)),
        ),
      ]),
    );
    up();
    await closed;
    return fault;
  } finally {
    channels.delete(channel);
    role.down?.(fault ?? said());
    if (!gone.aborted) await closeQuietly(channel); // closed already, as a rule
  }
}

function faultOf(error: Error & Partial<Record<'code' | 'classId' | 'methodId', unknown>>): ChannelFault {
  const numbers = (['code', 'classId', 'methodId'] as const).flatMap((name) =>
    typeof error[name] === 'number' ? [[name, error[name]]] : [],
  );
  return { message: error.message, ...(Object.fromEntries(numbers) as Omit<ChannelFault, 'message'>) };
}

/** @returns false when the broker did not answer */
async function closeQuietly(channel: Channel): Promise<boolean> {
  return bounded('close', CLOSE_MS, channel.close()).then(
    () => true,
    (error: unknown) => !(error instanceof TimeoutError), // else: it was closed already
  );
}

export type { Channel, ConfirmChannel };
