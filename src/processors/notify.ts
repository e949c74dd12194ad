import { createHash } from 'node:crypto';
import { createTransport } from 'nodemailer';
import { z } from 'zod';
import { defineProcessor } from '../actor/index.js';

const settings = z.object({
  SMTP_URL: z.url({ protocol: /^smtps?$/ }),
  MAIL_FROM: z.string().min(3).default('Twinbox <twinbox@example.org>'),
});

const schema = z.object({
  action: z.string(),
  repository: z.string(),
  title: z.string(),
  recipient: z.email(),
  sender: z.string().nullish(),
});

/** Mails a repository's maintainer what happened there. */
export const notify = defineProcessor({
  name: 'notify',
  owner: 'maintainers',
  // Where a person has something to answer; pushes and builds would only be noise in a mailbox.
  subscribes: [
    'github.issues.*',
    'github.pull_request.*',
    'github.discussion.created',
    'github.release.published',
  ],
  schema,
  example: {
    action: 'opened',
    repository: 'octo/hello',
    title: 'It breaks',
    recipient: 'maintainer@example.org',
  },
  attempts: 8,
  backoff: { firstMs: 1_000, capMs: 300_000 },
  concurrency: 20,
  timeoutMs: 30_000,
  settings,

  open: async ({ SMTP_URL, MAIL_FROM }) => {
    const transport = createTransport({
      url: SMTP_URL,
      pool: true,
      maxConnections: 10,
      // A connection that closed under a mail leaves open whether it was sent; the next attempt is recorded,
      // a silent second sending by the pool is not.
      maxRequeues: 0,
      // Each well below `timeoutMs`, so that the error says what was slow.
      connectionTimeout: 5_000,
      greetingTimeout: 5_000,
      socketTimeout: 15_000,
      // The text is other people's: it may not make the server read a file or fetch an address.
      disableFileAccess: true,
      disableUrlAccess: true,
    });
    return { transport, from: MAIL_FROM, close: () => transport.close() };
  },

  effect: async (event, { messageId, type, resources, signal, step }) => {
    const { transport, from } = resources;
    await step('mail', async (idempotencyKey) => {
      const sent = await transport.sendMail({
        from,
        to: event.recipient,
        subject: subjectOf(event),
        text: textOf(event, type),
        messageId: mailIdOf(idempotencyKey),
        headers: { 'X-Event-Id': messageId, 'Auto-Submitted': 'auto-generated' },
        signal,
      });
      return { mailId: sent.messageId, answer: sent.response };
    });
  },
});

type Notice = z.infer<typeof schema>;

/** The same for every sending of one message, so that a receiver can tell a repetition from a second mail. */
function mailIdOf(idempotencyKey: string): string {
  const digest = createHash('sha256').update(idempotencyKey).digest('hex');
  return `<${digest.slice(0, 40)}@notify.twinbox>`;
}

function subjectOf({ repository, title }: Notice): string {
  return `[${repository}] ${title}`.replace(/\s+/g, ' ').slice(0, 200);
}

function textOf({ action, repository, title, sender }: Notice, type: string): string {
  return [
    `${sender ?? 'Somebody'}: ${action} "${title}" in ${repository}`,
    '',
    `You get this mail because of the event ${type}.`,
    '',
  ].join('\n');
}
