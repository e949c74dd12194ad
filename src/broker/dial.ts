import type { Socket } from 'node:net';
import { connect, credentials, type Channel, type ChannelModel } from 'amqplib';
import { describe } from '../runtime/errors.js';
import { bounded } from '../runtime/loop.js';
import { placeOf, readAccess, type BrokerSource, type TlsMaterial } from './access.js';
import { explain } from './explain.js';

export interface Dialled {
  readonly model: ChannelModel;
  /** `host:port` */
  readonly place: string;
}

/**
 * Connects to one of the source's addresses: each in turn, from a random one on, so that many processes spread over the
 * nodes; and after a loss from the next one on, for the node that was lost is the least likely to answer.
 * @param ms for each address
 * @throws when none answers, with what each said
 */
export type Dialer = (name: string, ms: number, isOver?: () => boolean) => Promise<Dialled>;

/** The broker's own 60 s would leave a half-open connection unnoticed for up to three minutes. */
const HEARTBEAT_SECONDS = '10';

export function createDialer(source: BrokerSource, random: () => number = Math.random): Dialer {
  let first: number | undefined;
  return async (name, ms, isOver = () => false) => {
    const { addresses, tls } = readAccess(source);
    const begin: number = first ?? Math.floor(random() * addresses.length);
    first = begin;
    const faults: string[] = [];
    let last: unknown;
    for (const offset of addresses.keys()) {
      const at = begin + offset;
      const address = addresses[at % addresses.length] as string;
      try {
        const model = await connectTo(address, tls, name, ms);
        first = at + 1;
        return { model, place: placeOf(address) };
      } catch (error) {
        last = error;
        faults.push(`${placeOf(address)} ${textOf(error, address, ms)}`);
        if (isOver()) break;
      }
    }
    throw new Error(faults.join('; '), { cause: last });
  };
}

/** The library's own limit is told by a code alone. */
function textOf(error: unknown, address: string, ms: number): string {
  if (/ETIMEDOUT/.test((error as Error).message))
    return `timed out after ${ms / 1_000} s: nothing there answers as a broker does`;
  return explain(error, address)?.text ?? describe(error);
}

/** So much may wait in the socket before the library holds back: what is corked in one turn (see publisher.ts). */
const WIDE: object = { writableHighWaterMark: 256 * 1024 };

/** Connects within a limit; a connection that opens after it is dropped, or every try would leave one behind. */
async function connectTo(address: string, tls: TlsMaterial, name: string, ms: number): Promise<ChannelModel> {
  const url = withHeartbeat(address);
  const opening = connect(url.href, {
    timeout: ms,
    noDelay: true,
    keepAlive: true,
    clientProperties: { connection_name: name },
    ...WIDE,
    ...(url.protocol === 'amqps:' ? tls : {}),
    // The certificate is the login: the broker takes the user's name from it.
    ...(url.protocol === 'amqps:' && tls.cert !== undefined && url.username === ''
      ? { credentials: credentials.external() }
      : {}),
  });
  try {
    return await bounded('connecting to the broker', ms + 1_000, opening);
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
export function destroy(model: ChannelModel): void {
  socketOf(model).destroy();
}

export function socketOf(model: ChannelModel | Channel): Socket {
  return (model as unknown as { connection: { stream: Socket } }).connection.stream;
}

/** An address that names a heartbeat keeps it. */
function withHeartbeat(address: string): URL {
  const url = new URL(address);
  if (!url.searchParams.has('heartbeat')) url.searchParams.set('heartbeat', HEARTBEAT_SECONDS);
  return url;
}
