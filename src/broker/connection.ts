import type { Socket } from 'node:net';
import { connect, type Channel, type ChannelModel, type ConfirmChannel } from 'amqplib';
import { describe } from '../runtime/errors.js';
import type { Log } from '../runtime/log.js';
import { bounded, pause, TimeoutError } from '../runtime/loop.js';
import { backoffMs } from '../runtime/retry.js';

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
  readonly url: string;
  /** Shown in the broker's list of connections. */
  readonly name: string;
  readonly log: Log;
  readonly roles: readonly Role<never>[];
}

const CONNECT_MS = 8_000;
const SETUP_MS = 10_000;
const CLOSE_MS = 2_000;
/** The broker's own 60 s would leave a half-open connection unnoticed for up to three minutes. */
const HEARTBEAT_SECONDS = '10';
const STABLE_MS = 30_000;
const BACKOFF = { firstMs: 200, capMs: 10_000 };

/**
 * Keeps one connection and the channel of every role alive until `close`. The library's own recovery repairs
 * connections but never channels or deleted queues, and pooled managers ack on the wrong channel after a
 * reconnect: both lose messages. State follows 'close' alone: a restart of the broker emits nothing else.
 */
export function openConnection({ url, name, log, roles }: ConnectionOptions): BrokerConnection {
  const stopping = new AbortController();
  const stopped = (): boolean => stopping.signal.aborted;
  let current: ChannelModel | undefined;
  let blockedBy: string | undefined;
  let fault: string | undefined = 'not connected yet';
  const upRoles = new Set<string>();
  const channels = new Set<Channel>();

  const runConnection = async (): Promise<void> => {
    const model = await dial(url, name);
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
    log.info({ event: 'broker.connected' }, 'connected to the broker');
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
        const fault = await holdChannel(model, role, gone, channels, said, () => upRoles.add(role.name));
        if (fault !== undefined)
          log.warn(
            { event: 'broker.channel.closed', role: role.name, code: fault.code, reason: fault.message },
            `the channel of ${role.name} was closed; opening another`,
          );
      } catch (error) {
        if (current === model)
          log.warn(
            { event: 'broker.role.failed', role: role.name, err: error },
            `cannot set up ${role.name}: ${describe(error)}`,
          );
        // A call without an answer: the connection is half-open or wedged, whole.
        if (error instanceof TimeoutError) destroy(model);
      }
      upRoles.delete(role.name);
      failures = Date.now() - since > STABLE_MS ? 1 : failures + 1;
      await pause(backoffMs(failures, BACKOFF, Math.random()), AbortSignal.any([gone, stopping.signal]));
    }
  };

  const run = async (): Promise<void> => {
    for (let failures = 0; !stopped();) {
      const since = Date.now();
      try {
        await runConnection();
        fault = 'the connection to the broker is gone';
        if (!stopped()) log.warn({ event: 'broker.gone' }, fault);
      } catch (error) {
        fault = `the broker cannot be reached: ${describe(error)}`;
        log.warn({ event: 'broker.unreachable', err: error }, fault);
      }
      failures = Date.now() - since > STABLE_MS ? 1 : failures + 1;
      await pause(backoffMs(failures, BACKOFF, Math.random()), stopping.signal);
    }
  };
  const running = run();

  return {
    fault: () =>
      fault ??
      roles
        .filter((role) => !upRoles.has(role.name))
        .map((role) => `${role.name} is not attached to the broker`)[0],
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
          Promise.reject(new Error(fault?.message ?? 'the channel was closed during its set-up')),
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

function faultOf({ message, code }: Error & { code?: unknown }): ChannelFault {
  return { message, ...(typeof code === 'number' ? { code } : {}) };
}

/** @returns false when the broker did not answer */
async function closeQuietly(channel: Channel): Promise<boolean> {
  return bounded('close', CLOSE_MS, channel.close()).then(
    () => true,
    (error: unknown) => !(error instanceof TimeoutError), // else: it was closed already
  );
}

/** Connects within a limit; a connection that opens after it is dropped, or every try would leave one behind. */
async function dial(url: string, name: string): Promise<ChannelModel> {
  const opening = connect(withHeartbeat(url), {
    timeout: CONNECT_MS,
    noDelay: true,
    keepAlive: true,
    clientProperties: { connection_name: name },
  });
  try {
    return await bounded('connecting to the broker', CONNECT_MS + 1_000, opening);
  } catch (error) {
    opening.then(
      (late) => {
        late.on('error', () => undefined);
        destroy(late);
      },
      () => undefined,
    );
    throw error;
  }
}

/** The library offers no hard close; the socket does. */
function destroy(model: ChannelModel): void {
  socketOf(model).destroy();
}

function socketOf(model: ChannelModel): Socket {
  return (model as unknown as { connection: { stream: Socket } }).connection.stream;
}

/** An address that names a heartbeat keeps it. */
function withHeartbeat(address: string): string {
  const url = new URL(address);
  if (!url.searchParams.has('heartbeat')) url.searchParams.set('heartbeat', HEARTBEAT_SECONDS);
  return url.href;
}

export type { Channel, ConfirmChannel };
