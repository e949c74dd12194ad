import { request as plainRequest } from 'node:http';
import { request as tlsRequest } from 'node:https';
import { readAccess, vhostOf, type BrokerSource } from './access.js';
import { compareArguments, type Seen, type SeenBinding, type SeenQueue } from './plan.js';
import type { Topology } from './topology.js';

/** The management API, as far as it is asked here: it only looks. */
export interface Management {
  /** Everything of the virtual host. @throws when it does not answer, or refuses the user, with the fix */
  see(want: Topology): Promise<Seen>;
  /**
   * All messages of a queue: ready, unacked, and those that are on their way to its dead-letter exchange, which no
   * passive declare shows. A few seconds old; undefined while the API has no figures of the queue.
   */
  messagesOf(queue: string): Promise<number | undefined>;
}

interface ApiThing {
  readonly name: string;
  readonly durable: boolean;
  readonly auto_delete: boolean;
  readonly arguments: Record<string, unknown>;
}

interface ApiExchange extends ApiThing {
  readonly type: string;
}

interface ApiQueue extends ApiThing {
  readonly messages?: number;
  readonly consumers?: number;
  readonly policy?: string | null;
  readonly effective_policy_definition?: Record<string, unknown> | null;
}

interface ApiBinding {
  readonly source: string;
  readonly destination: string;
  readonly destination_type: string;
  readonly routing_key: string;
  readonly arguments: Record<string, unknown>;
}

const ANSWER_MS = 10_000;

/**
 * @param address without a user, the one of the broker's address logs in
 * @param source the broker: its virtual host, and the certificates that the API is checked by
 */
export function openManagement(address: string, source: BrokerSource): Management {
  const { addresses, tls } = readAccess(source);
  const broker = addresses[0] as string;
  const vhost = encodeURIComponent(vhostOf(broker));
  const ask = (path: string): Promise<unknown> => get(address, new URL(broker), path, tls.ca);
  return {
    see: async (want) => {
      const [exchanges, queues, bindings] = (await Promise.all([
        ask(`exchanges/${vhost}`),
        ask(
          `queues/${vhost}?columns=name,durable,auto_delete,arguments,policy,effective_policy_definition,messages,consumers`,
        ),
        ask(`bindings/${vhost}`),
      ])) as [ApiExchange[], ApiQueue[], ApiBinding[]];
      return seenOf(want, exchanges, queues, bindings);
    },
    messagesOf: async (queue) => {
      const found = (await ask(`queues/${vhost}/${encodeURIComponent(queue)}?columns=messages`)) as ApiQueue;
      return found.messages;
    },
  };
}

/** What the API answered, compared with the description. */
export function seenOf(
  want: Topology,
  exchanges: readonly ApiExchange[],
  queues: readonly ApiQueue[],
  bindings: readonly ApiBinding[],
): Seen {
  const fixed = { durable: true, auto_delete: false };
  const attributes = ({ durable, auto_delete, arguments: args }: ApiThing): Record<string, unknown> => ({
    durable,
    auto_delete,
    ...args,
  });
  return {
    through: 'management',
    exchanges: new Map(
      exchanges.map((one) => {
        const spec = want.exchanges.find(({ name }) => name === one.name);
        const have = { type: one.type, ...attributes(one) };
        return [
          one.name,
          {
            differs:
              spec === undefined
                ? []
                : compareArguments({ type: spec.type, ...fixed, ...spec.arguments }, have),
          },
        ];
      }),
    ),
    queues: new Map(
      queues.map((one): [string, SeenQueue] => {
        const spec = want.queues.find(({ name }) => name === one.name);
        const target = one.arguments['x-dead-letter-exchange'];
        return [
          one.name,
          {
            differs:
              spec === undefined ? [] : compareArguments({ ...fixed, ...spec.arguments }, attributes(one)),
            messages: one.messages,
            consumers: one.consumers,
            ...(typeof target === 'string' ? { deadLetterExchange: target } : {}),
            ...policyOf(one),
          },
        ];
      }),
    ),
    bindings: bindings
      .filter((one) => one.source !== '' && one.destination_type === 'queue')
      .map((one): SeenBinding => ({
        exchange: one.source,
        queue: one.destination,
        pattern: one.routing_key,
        arguments: one.arguments,
      })),
  };
}

function policyOf({ policy, effective_policy_definition: definition }: ApiQueue): { policy?: string } {
  const set = Object.entries(definition ?? {});
  if (set.length === 0) return {};
  const values = set.map(([name, value]) => `${name} ${String(value)}`).join(', ');
  return { policy: `${policy ?? 'operator policy'} (${values})` };
}

function get(address: string, broker: URL, path: string, ca: string | undefined): Promise<unknown> {
  const url = new URL(`${address.replace(/\/+$/, '')}/api/${path}`);
  const { username, password } = url.username === '' ? broker : url;
  url.username = url.password = '';
  const where = `the management API at ${url.host}`;
  const request = url.protocol === 'https:' ? tlsRequest : plainRequest;
  return new Promise((resolve, reject) => {
    const call = request(
      url,
      {
        auth: `${decodeURIComponent(username)}:${decodeURIComponent(password)}`,
        signal: AbortSignal.timeout(ANSWER_MS),
        ...(ca === undefined ? {} : { ca }),
      },
      (answer) => {
        const chunks: Buffer[] = [];
        answer.on('data', (chunk: Buffer) => chunks.push(chunk));
        answer.on('error', reject);
        answer.on('end', () => {
          if (answer.statusCode !== 200) {
            reject(new Error(`${where} answers ${answer.statusCode ?? 0}${meaningOf(answer.statusCode)}`));
            return;
          }
          try {
            resolve(JSON.parse(Buffer.concat(chunks).toString('utf8')));
          } catch (error) {
            reject(new Error(`${where} answers something else than JSON`, { cause: error }));
          }
        });
      },
    );
    call.on('error', (error) =>
      reject(new Error(`${where} does not answer: ${error.message}`, { cause: error })),
    );
    call.end();
  });
}

function meaningOf(status: number | undefined): string {
  if (status === 401)
    return ': wrong name or password, or the user has no tag for it (`rabbitmqctl set_user_tags USER management`)';
  if (status === 404) return ': no such virtual host or queue, or no management API there';
  return '';
}
