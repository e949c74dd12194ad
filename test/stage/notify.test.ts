import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { receiveMail, type Mailbox } from '../../examples/deliveries/mailbox.js';
import type { Closable, EffectContext } from '../../src/actor/index.js';
import { notify } from '../../src/processors/notify.js';
import { until } from '../support/until.js';

const event = {
  action: 'opened',
  repository: 'octo/hello',
  title: 'It breaks\r\nBcc: everybody@example.org',
  recipient: 'octo@example.org',
};

/** The run of one message, without a ledger: every call sends. */
function run(messageId: string, resources: unknown, signal = AbortSignal.timeout(20_000)): Promise<void> {
  const context = {
    messageId,
    type: 'github.issues.opened',
    resources,
    signal,
    step: (name: string, work: (key: string) => Promise<unknown>) => work(`${messageId}:${name}`),
  };
  return notify.effect(event, context as unknown as EffectContext<unknown>);
}

const openAt = async (url: string): Promise<Closable> =>
  (await notify.open!(notify.settings!.parse({ SMTP_URL: url }))) as Closable;

describe('notify', () => {
  let mailbox: Mailbox;
  let resources: Closable;

  beforeEach(async () => {
    mailbox = await receiveMail();
    resources = await openAt(mailbox.url);
  });
  afterEach(async () => {
    await resources.close?.();
    await mailbox.close();
  });

  it('sends a mail whose title cannot add a header', async () => {
    await run('m-1', resources);
    expect([...mailbox.messages.values()]).toEqual([
      {
        count: 1,
        to: 'octo@example.org',
        subject: '[octo/hello] It breaks Bcc: everybody@example.org',
        eventId: 'm-1',
      },
    ]);
  });

  it('sends the same message again under the same Message-ID, and another under another', async () => {
    await run('m-1', resources);
    await run('m-1', resources);
    await run('m-2', resources);
    const mails = [...mailbox.messages].map(([mailId, { count, eventId }]) => [mailId, count, eventId]);
    const id = expect.stringMatching(/^<[0-9a-f]{40}@notify\.twinbox>$/) as string;
    expect(mails).toEqual([
      [id, 2, 'm-1'],
      [id, 1, 'm-2'],
    ]);
  });

  it('sends fifty at a time', async () => {
    await Promise.all(Array.from({ length: 50 }, (_, index) => run(`m-${index}`, resources)));
    expect(mailbox.messages.size).toBe(50);
  });

  it('fails when nobody listens, and works again when somebody does', async () => {
    const { port } = new URL(mailbox.url);
    await mailbox.close();
    await expect(run('m-1', resources)).rejects.toThrow(/ECONNREFUSED|closed/i);
    mailbox = await receiveMail({ port: Number(port) });
    await run('m-1', resources);
    expect(mailbox.messages.size).toBe(1);
  });

  it('ends when its signal aborts, also while the server says nothing', async () => {
    const sockets: Socket[] = [];
    const silent = createServer((socket) => sockets.push(socket));
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
    const mute = await openAt(`smtp://127.0.0.1:${(silent.address() as AddressInfo).port}`);
    const abort = new AbortController();
    const began = Date.now();
    const running = run('m-1', mute, abort.signal);
    await until('the connection stands', () => sockets.length === 1);
    abort.abort();
    await expect(running).rejects.toThrow(/abort/i);
    // Greeting and socket timeouts are 5 s and 15 s.
    expect(Date.now() - began).toBeLessThan(4_000);
    await mute.close?.();
    for (const socket of sockets) socket.destroy();
    silent.close();
  });

  it('refuses an address that is not SMTP', () => {
    expect(notify.settings!.safeParse({ SMTP_URL: 'http://127.0.0.1' }).success).toBe(false);
    expect(notify.settings!.safeParse({}).success).toBe(false);
  });
});

describe('the mailbox', () => {
  it('says that its port is taken', async () => {
    const mailbox = await receiveMail();
    const { port } = new URL(mailbox.url);
    await expect(receiveMail({ port: Number(port) })).rejects.toThrow('EADDRINUSE');
    await mailbox.close();
  });

  it('counts nothing of a client that vanishes in the middle of a mail', async () => {
    const mailbox = await receiveMail();
    const socket = connect(Number(new URL(mailbox.url).port), '127.0.0.1');
    let heard = '';
    socket.on('data', (chunk) => (heard += chunk.toString()));
    const say = async (line: string, answer: RegExp) => {
      socket.write(`${line}\r\n`);
      await until(`an answer to ${line}`, () => answer.test(heard));
    };
    await until('the greeting', () => heard.startsWith('220 '));
    await say('EHLO me', /250 /);
    await say('MAIL FROM:<a@example.org>', /Accepted/);
    await say('RCPT TO:<b@example.org>', /Accepted[\s\S]*Accepted/);
    await say('DATA', /354/);
    socket.write('Message-ID: <half@x>\r\n\r\nhalf of');
    await new Promise<void>((resolve) => socket.end(resolve));
    await new Promise((resolve) => socket.once('close', resolve));
    await mailbox.close();
    expect(mailbox.messages.size).toBe(0);
  });
});
