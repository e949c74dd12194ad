import { X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { readConfig } from '../runtime/config.js';
import { ConfigurationError } from '../runtime/errors.js';

/** What TLS needs beside the address, each as PEM text. */
export interface TlsMaterial {
  /** Authorities that are trusted instead of the system's. */
  readonly ca?: string;
  /** Our own certificate, with its chain. */
  readonly cert?: string;
  readonly key?: string;
}

/** Where the broker is, and what it takes to be let in. */
export interface BrokerAccess {
  /** One address or several, of the same virtual host; with their passwords. */
  readonly addresses: readonly string[];
  readonly tls: TlsMaterial;
}

/** One or several addresses with commas between; or a function that is asked anew at each connecting. */
export type BrokerSource = string | (() => BrokerAccess);

/**
 * The broker's addresses and certificates as the environment gives them. What stands in a file (`…_FILE`) is read again
 * at each connecting, so that a rotated password or certificate is taken without a restart.
 * @param process process type or command, for the messages
 * @throws {ConfigurationError} at once for what cannot work; the function that is returned throws the same later, when
 *   a file has become unreadable: that counts as a broker that cannot be reached, and is tried again
 */
export function brokerAccess(
  env: Readonly<Record<string, string | undefined>>,
  process: string,
): () => BrokerAccess {
  const read = (): BrokerAccess => {
    const config = readConfig(env, ['RABBITMQ_URL'], { process });
    const access: BrokerAccess = {
      addresses: addressesOf(config.RABBITMQ_URL),
      tls: {
        ...(config.RABBITMQ_CA === undefined ? {} : { ca: config.RABBITMQ_CA }),
        ...(config.RABBITMQ_CERT === undefined ? {} : { cert: config.RABBITMQ_CERT }),
        ...(config.RABBITMQ_KEY === undefined ? {} : { key: config.RABBITMQ_KEY }),
      },
    };
    const fault = faultOf(access);
    if (fault !== undefined) throw new ConfigurationError(fault);
    return access;
  };
  read();
  return read;
}

/** What a source gives now. */
export function readAccess(source: BrokerSource): BrokerAccess {
  return typeof source === 'string' ? { addresses: addressesOf(source), tls: {} } : source();
}

export function addressesOf(list: string): string[] {
  return list.split(',').map((address) => address.trim());
}

/** `host:port`, for people: never the login. */
export function placeOf(address: string): string {
  const { hostname, port, protocol } = new URL(address);
  return `${hostname}:${port === '' ? (protocol === 'amqps:' ? 5671 : 5672) : port}`;
}

/** The virtual host of an address, as the client library reads it. */
export function vhostOf(address: string): string {
  const path = new URL(address).pathname;
  return path === '' || path === '/' ? '/' : decodeURIComponent(path.slice(1));
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g;

function faultOf({ addresses, tls }: BrokerAccess): string | undefined {
  const given = Object.entries({ RABBITMQ_CA: tls.ca, RABBITMQ_CERT: tls.cert, RABBITMQ_KEY: tls.key })
    .filter(([, value]) => value !== undefined)
    .map(([name]) => name);
  if (given.length === 0) return undefined;
  if (!addresses.some((address) => address.startsWith('amqps:')))
    return `${given.join(' and ')} would not be used: RABBITMQ_URL has no address with amqps://; write amqps:// (its port is 5671), or leave them out`;
  if ((tls.cert === undefined) !== (tls.key === undefined))
    return `RABBITMQ_CERT and RABBITMQ_KEY belong together: set ${tls.cert === undefined ? 'RABBITMQ_CERT' : 'RABBITMQ_KEY'} too`;
  try {
    createSecureContext(tls);
    // Authorities that cannot be read are left out without a word, and then nothing is trusted.
    for (const [block] of `${tls.ca ?? ''}${tls.cert ?? ''}`.matchAll(CERTIFICATE))
      new X509Certificate(block);
    return undefined;
  } catch (error) {
    // The library's words name no secret: "key values mismatch", "no start line".
    return `the certificates for the broker cannot be used (${(error as Error).message}): RABBITMQ_KEY must be the unencrypted private key of RABBITMQ_CERT, and all of them PEM`;
  }
}
