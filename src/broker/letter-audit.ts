import { randomUUID } from 'node:crypto';
import type { ChannelModel, ConfirmChannel, ConsumeMessage } from 'amqplib';
import { lookInto } from './look.js';
import type { Letter } from './letter.js';
import type { LetterFilter } from './letter-filter.js';
import { createPublisher, type Publisher } from './publisher.js';
import { assertQueue, LETTER_AUDIT, LETTER_AUDIT_QUEUE } from './topology.js';

/** What is kept of a command that replays or purges letters. */
export interface LetterAuditEntry {
  /** The person and the machine. */
  readonly who: string;
  /** As `dlq replay`. */
  readonly command: string;
  readonly actor: string;
  readonly reason?: string;
  readonly filter: LetterFilter;
}

/** One command, put together from what it wrote down. */
export interface LetterAuditLine extends LetterAuditEntry {
  /** When it began, ISO, by the clock of the machine it ran on. */
  readonly at: string;
  readonly letters: readonly AuditedLetter[];
  /** Undefined: it was killed, or is under way. */
  readonly ended?: 'complete' | 'incomplete';
}

export type AuditedLetter = Pick<Letter, 'letter' | 'reason'> & { readonly id: string | null };

type Step =
  | ({ readonly step: 'begun'; readonly run: string; readonly at: string } & LetterAuditEntry)
  | { readonly step: 'letters'; readonly run: string; readonly letters: readonly AuditedLetter[] }
  | { readonly step: 'ended'; readonly run: string; readonly ended: 'complete' | 'incomplete' };

export interface LetterAudit {
  /** Before the letters are removed from their queue, so that a command that is killed has written down all it removed. */
  note(letters: readonly Letter[]): Promise<void>;
  end(ended: 'complete' | 'incomplete'): Promise<void>;
}

const CONFIRM_MS = 30_000;

/** @throws when the broker does not take the entry: then nothing may be changed */
export async function beginLetterAudit(
  channel: ConfirmChannel,
  entry: LetterAuditEntry,
): Promise<LetterAudit> {
  await assertQueue(channel, LETTER_AUDIT_QUEUE);
  const publisher = await publisherOn(channel);
  const run = randomUUID();
  const write = async (step: Step): Promise<void> => {
    const outcome = await publisher.publish({
      exchange: '',
      routingKey: LETTER_AUDIT,
      body: Buffer.from(JSON.stringify(step)),
      messageId: randomUUID(),
      options: { contentType: 'application/json', type: `letters.${step.step}` },
    });
    if (outcome.kind !== 'confirmed')
      throw new Error(
        `nothing more is changed, for the audit (${LETTER_AUDIT}) does not take it: ${'detail' in outcome ? outcome.detail : outcome.kind}`,
      );
  };
  await write({ step: 'begun', run, at: new Date().toISOString(), ...entry });
  return {
    note: (letters) =>
      write({
        step: 'letters',
        run,
        letters: letters.map(({ letter, id, reason }) => ({ letter, reason, id: id ?? null })),
      }),
    end: (ended) => write({ step: 'ended', run, ended }),
  };
}

/** A confirming publisher on a channel of one's own. */
export async function publisherOn(channel: ConfirmChannel): Promise<Publisher> {
  const publisher = createPublisher({ name: 'letters', confirmTimeoutMs: CONFIRM_MS });
  let fault: Error | undefined;
  channel.on('error', (error: Error) => (fault = error));
  channel.on('close', () => publisher.role.down?.(fault));
  await publisher.role.setup(channel);
  return publisher;
}

/** Every command that is written down, the oldest first. */
export async function readLetterAudit(model: ChannelModel): Promise<LetterAuditLine[]> {
  const steps: Step[] = [];
  await lookInto(model, {
    queue: LETTER_AUDIT,
    pick: stepOf,
    handle: async (picked) => {
      steps.push(...picked);
      return 'more';
    },
  });
  return auditLines(steps);
}

function stepOf({ content }: ConsumeMessage): Step | undefined {
  try {
    const step = JSON.parse(content.toString('utf8')) as Partial<Step> | null;
    return typeof step?.run === 'string' ? (step as Step) : undefined;
  } catch {
    return undefined; // somebody else's
  }
}

/** Steps whose beginning is gone already (the audit is bounded) are left out. */
export function auditLines(steps: readonly Step[]): LetterAuditLine[] {
  const lines = new Map<string, LetterAuditLine>();
  for (const step of steps) {
    if (step.step === 'begun') {
      const { step: _step, run, ...begun } = step;
      lines.set(run, { ...begun, letters: [] });
      continue;
    }
    const line = lines.get(step.run);
    if (line === undefined) continue;
    lines.set(
      step.run,
      step.step === 'letters'
        ? { ...line, letters: [...line.letters, ...step.letters] }
        : { ...line, ended: step.ended },
    );
  }
  return [...lines.values()];
}
