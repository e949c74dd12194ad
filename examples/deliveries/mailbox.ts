import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { SMTPServer } from 'smtp-server';

/** A mail that arrived: how often, and what its headers say. */
export interface ReceivedMail {
  count: number;
  readonly to: string;
  readonly subject: string;
  /** `X-Event-Id`: the event that it was sent for. */
  readonly eventId?: string;
}

export interface Mailbox {
  /** `smtp://127.0.0.1:port` */
  readonly url: string;
  /** By Message-ID, with its angle brackets. */
  readonly messages: ReadonlyMap<string, ReceivedMail>;
  close(): Promise<void>;
}

/**
 * Receives every mail that it is sent, and keeps no text of it. No login, no TLS: for loopback alone.
 * @throws when the port is taken
 */
export async function receiveMail({
  port = 0,
  host = '127.0.0.1',
}: { port?: number; host?: string } = {}): Promise<Mailbox> {
  const messages = new Map<string, ReceivedMail>();
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['AUTH', 'STARTTLS'],
    disableReverseLookup: true,
    closeTimeout: 1_000,
    onData(stream, _session, done) {
      text(stream).then((source) => {
        remember(messages, headersOf(source));
        done();
      }, done);
    },
  });
  const address = await listen(server, port, host);
  // A client that vanishes in the middle of a mail is its own trouble.
  server.on('error', () => undefined);
  return {
    url: `smtp://${host}:${address.port}`,
    messages,
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
}

function listen(server: SMTPServer, port: number, host: string): Promise<AddressInfo> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => {
      server.off('error', reject);
      resolve(server.server.address() as AddressInfo);
    });
  });
}

function remember(messages: Map<string, ReceivedMail>, headers: ReadonlyMap<string, string>): void {
  const messageId = headers.get('message-id') ?? '(no Message-ID)';
  const before = messages.get(messageId);
  if (before !== undefined) {
    before.count += 1;
    return;
  }
  const eventId = headers.get('x-event-id');
  messages.set(messageId, {
    count: 1,
    to: headers.get('to') ?? '',
    subject: headers.get('subject') ?? '',
    ...(eventId !== undefined && { eventId }),
  });
}

/** Headers by lower-case name, folded lines joined. Encoded words stay as they are. */
function headersOf(source: string): Map<string, string> {
  const [head = ''] = source.split(/\r?\n\r?\n/, 1);
  return new Map(
    head
      .replace(/\r?\n[ \t]+/g, ' ')
      .split(/\r?\n/)
      .map((line) => line.split(/:\s*(.*)/s, 2))
      .filter((pair): pair is [string, string] => pair.length === 2)
      .map(([name, value]) => [name.toLowerCase(), value.trim()]),
  );
}
