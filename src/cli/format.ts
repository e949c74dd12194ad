import { text as readAll } from 'node:stream/consumers';
import { parseArgs } from 'node:util';
import { detectFormat, partsOf, readDelivery, type RawDelivery, type WithoutId } from '../message/index.js';
import { DEFAULT_MAX_BODY_BYTES } from '../runtime/limits.js';
import { UsageError, usageOf, withUsage, type CommandContext } from './command.js';
import { plain } from './table.js';

const USAGE = `twinbox format detect < message.json

Says how ingest understands a message: its format and why, its id and where it was found, its type and time, or why it
would be refused. Nothing is sent anywhere.

  The message, as JSON; everything may be left out:
    {"props": {"messageId": "m-1", "contentType": "application/json"},
     "headers": {"tenant": "blue"}, "body": {"orderId": "o-1"},
     "exchange": "twinbox.in", "routingKey": "order.placed"}
  props are AMQP's properties by the names of amqplib. Instead of "body" (JSON): "text" or "base64". {"$bytes": "<base64>"}
  among the headers is a byte string.

  --without-id hash   as for an actor that takes the hash of a message without an id
  --json              the answer as JSON

exit codes: 0 it would be recorded, 1 it would be a dead letter, 2 usage
`;

/** @returns 0 it would be recorded, 1 it would be a dead letter, 2 usage */
export function format(context: CommandContext, input: NodeJS.ReadableStream): Promise<number> {
  return withUsage(USAGE, context, async () => {
    const { values, positionals } = usageOf(() =>
      parseArgs({
        args: [...context.argv],
        allowPositionals: true,
        options: { 'without-id': { type: 'string' }, json: { type: 'boolean', default: false } },
      }),
    );
    if (positionals.join(' ') !== 'detect')
      throw new UsageError('the one thing to do with a format is: detect');
    const answer = explain(deliveryOf(await readAll(input)), withoutIdOf(values['without-id']));
    context.stdout.write(values.json ? `${JSON.stringify(answer, null, 2)}\n` : toText(answer));
    return answer.refused === undefined ? 0 : 1;
  });
}

export interface Explanation {
  readonly format: string;
  /** Why it is this format. */
  readonly why: string;
  /** One a message: a batch holds several. */
  readonly messages: readonly {
    readonly messageId: string;
    readonly idSource: string;
    readonly type: string;
    readonly key?: string;
    readonly createdAt?: string;
  }[];
  /** The reason and the detail that its dead letter would carry. */
  readonly refused?: { readonly reason: string; readonly detail: string };
}

export function explain(delivery: RawDelivery, withoutId: WithoutId): Explanation {
  const { format: found, why } = detectFormat(partsOf(delivery, delivery.content));
  const reading = readDelivery(delivery, { maxBodyBytes: DEFAULT_MAX_BODY_BYTES, withoutId });
  if ('refusal' in reading) return { format: found.name, why, messages: [], refused: reading.refusal };
  return {
    format: found.name,
    why,
    messages: reading.envelopes.map(({ messageId, source, type, key, createdAtMs }) => ({
      messageId,
      idSource: source.idSource,
      type,
      ...(key === undefined ? {} : { key }),
      ...(createdAtMs === undefined ? {} : { createdAt: new Date(createdAtMs).toISOString() }),
    })),
  };
}

function toText({ format: name, why, messages, refused }: Explanation): string {
  const lines = [`format   ${name} (${why})`];
  for (const { messageId, idSource, type, key, createdAt } of messages) {
    lines.push(`id       ${messageId} (${idSource})`, `type     ${type}`);
    if (key !== undefined) lines.push(`key      ${key}`);
    if (createdAt !== undefined) lines.push(`created  ${createdAt}`);
  }
  if (refused !== undefined) lines.push(`refused  ${refused.reason}: ${refused.detail}`);
  return lines.map((line) => `${plain(line)}\n`).join('');
}

function withoutIdOf(value: string | undefined): WithoutId {
  if (value === undefined || value === 'hash' || value === 'dead-letter') return value ?? 'dead-letter';
  throw new UsageError(`--without-id takes hash or dead-letter, not ${JSON.stringify(value)}`);
}

interface Pasted {
  readonly props?: Record<string, unknown>;
  readonly headers?: Record<string, unknown>;
  readonly body?: unknown;
  readonly text?: string;
  readonly base64?: string;
  readonly exchange?: string;
  readonly routingKey?: string;
}

/** @throws {UsageError} when it is not what the usage shows */
function deliveryOf(json: string): RawDelivery {
  let pasted: unknown;
  try {
    pasted = JSON.parse(json) as unknown;
  } catch {
    throw new UsageError('standard input is no JSON: paste a message as below');
  }
  if (typeof pasted !== 'object' || pasted === null || Array.isArray(pasted))
    throw new UsageError('standard input is no JSON object: paste a message as below');
  const { props, headers, body, text, base64, exchange = '', routingKey = '' } = pasted as Pasted;
  const content =
    typeof base64 === 'string'
      ? Buffer.from(base64, 'base64')
      : Buffer.from(typeof text === 'string' ? text : JSON.stringify(body ?? null));
  const own = headers ?? props?.headers;
  return {
    content,
    fields: { exchange, routingKey, redelivered: false },
    properties: { ...props, ...(own === undefined ? {} : { headers: bytesIn(own) }) },
  };
}

function bytesIn(headers: unknown): unknown {
  if (typeof headers !== 'object' || headers === null) return headers;
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]: [string, unknown]) => {
      const bytes = (value as { $bytes?: unknown } | null)?.$bytes;
      return [name, typeof bytes === 'string' ? Buffer.from(bytes, 'base64') : value];
    }),
  );
}
