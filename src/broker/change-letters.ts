import type { ChannelModel } from 'amqplib';
import { isOver, pause } from '../runtime/loop.js';
import type { Probe } from '../runtime/probe.js';
import { MAX_DEPTH } from './header-table.js';
import { readLetter, replayOf, type Letter } from './letter.js';
import { beginLetterAudit, publisherOn, type LetterAudit, type LetterAuditEntry } from './letter-audit.js';
import { isMeant } from './letter-filter.js';
import { lookInto } from './look.js';
import type { Outcome, Publisher } from './publisher.js';
import { deadLetterQueue, mailboxQueue } from './topology.js';

export interface LetterChange {
  readonly model: ChannelModel;
  readonly action: 'replay' | 'purge';
  /** Whom it is about, which letters, and what is written down of it. */
  readonly audit: LetterAuditEntry;
  /** No more than this many. */
  readonly most?: number | undefined;
  /** Letters a second; undefined: as fast as they go. */
  readonly perSecond?: number | undefined;
  readonly signal: AbortSignal;
  readonly probe: Probe;
  /** Told after every batch. */
  progress(changed: number): void;
}

export interface LetterChanged {
  readonly changed: number;
  /** Letters that were meant and cannot be replayed: they stay where they are, each with why. */
  readonly left: readonly LeftLetter[];
  /** What stopped it; the letters that were not reached stay as they were. */
  readonly stopped?: string;
}

export interface LeftLetter extends Pick<Letter, 'letter' | 'id'> {
  readonly why: string;
}

type Held = Letter & { remove(): void };

const LARGEST_BATCH = 100;
/**
 * From the first batch on, for to get there may take longer where the queue is deep. Others get their turn in between, and
 * no letter is held as long as the broker's limit for an ack (30 minutes).
 */
const TURN_MS = 5_000;
const BETWEEN_TURNS_MS = 250;

/**
 * Replays or purges the letters that are meant, oldest first, each once: what comes back meanwhile, because it failed
 * again, is not taken a second time. Of a batch, first every message is confirmed in its mailbox, then the batch is written
 * down, then its letters are removed: whatever dies in between, no letter is lost, and none is removed that the audit lacks.
 * @throws what the broker says; what was changed until then stands in the audit
 */
export async function changeLetters(change: LetterChange): Promise<LetterChanged> {
  const { model, audit: entry, signal } = change;
  const queue = deadLetterQueue(entry.actor);
  const channel = await model.createConfirmChannel();
  channel.on('error', () => undefined); // the call under way rejects with the same
  const { messageCount } = await channel.checkQueue(queue);
  const audit = await beginLetterAudit(channel, entry);
  const work = createWork(change, audit, await publisherOn(channel));
  for (let over = false; !over;) {
    const turn = work.turn(TURN_MS);
    const { partly } = await lookInto<Held>(model, {
      queue,
      // What arrived since the beginning stands behind these.
      most: messageCount - work.changed(),
      pick: (message, remove) => {
        const letter = readLetter(message, entry.actor);
        return isMeant(entry.filter, letter) && work.takes(letter) ? { ...letter, remove } : undefined;
      },
      handle: async (letters) => ((await turn.take(letters)) ? 'more' : 'enough'),
    });
    over = work.isOver() || !turn.isOver();
    if (!turn.isOver() && partly)
      work.stop(`only the oldest letters of ${queue} can be looked at; mend those first`);
    if (!over) await pause(BETWEEN_TURNS_MS, signal);
  }
  const result = work.result();
  await audit.end(result.stopped === undefined && result.left.length === 0 ? 'complete' : 'incomplete');
  await channel.close();
  return result;
}

interface Work {
  /** A turn of so many milliseconds, in which at least one batch is done. */
  turn(ms: number): {
    /** @returns false when the turn is over, or everything is */
    take(letters: readonly Held[]): Promise<boolean>;
    isOver(): boolean;
  };
  /** Neither left already, nor back from this very command. */
  takes(letter: Letter): boolean;
  changed(): number;
  stop(why: string): void;
  isOver(): boolean;
  result(): LetterChanged;
}

function createWork(change: LetterChange, audit: LetterAudit, publisher: Publisher): Work {
  const { action, most = Infinity, perSecond, signal } = change;
  const began = performance.now();
  const left = new Map<string, LeftLetter>();
  /** The replay count with which each was sent. */
  const sent = new Map<string, number>();
  const batchSize = Math.min(LARGEST_BATCH, Math.max(1, Math.ceil((perSecond ?? Infinity) / 10)));
  let changed = 0;
  let stopped: string | undefined;

  const replay = async (batch: readonly Held[]): Promise<Held[]> => {
    const outcomes = await Promise.all(batch.map((letter) => move(letter, change.audit.actor, publisher)));
    batch.forEach((letter, index) => {
      const outcome = outcomes[index] as Outcome;
      if (outcome.kind === 'refused')
        left.set(letter.letter, { letter: letter.letter, id: letter.id, why: outcome.detail });
      else if (outcome.kind !== 'confirmed') stopped ??= faultOf(outcome, change.audit.actor);
    });
    const moved = batch.filter((_, index) => outcomes[index]?.kind === 'confirmed');
    for (const { letter, replayCount } of moved) sent.set(letter, replayCount + 1);
    return moved;
  };

  const doBatch = async (batch: readonly Held[]): Promise<void> => {
    const done = action === 'replay' ? await replay(batch) : batch;
    if (done.length === 0) return;
    if (action === 'replay')
      change.probe(
        'replay.moved',
        done.map(({ id }) => id ?? ''),
      );
    await audit.note(done);
    for (const letter of done) letter.remove();
    changed += done.length;
    change.progress(changed);
  };

  const work: Work = {
    turn: (ms) => {
      let ends: number | undefined;
      let over = false;
      return {
        isOver: () => over,
        take: async (letters) => {
          for (let at = 0; at < letters.length;) {
            over = work.isOver() || (ends !== undefined && performance.now() > ends);
            if (over) return false;
            ends ??= performance.now() + ms;
            const batch = letters.slice(at, at + Math.min(batchSize, most - changed));
            await doBatch(batch);
            at += batch.length;
            if (perSecond !== undefined)
              await pause(began + (changed / perSecond) * 1_000 - performance.now(), signal);
          }
          return true;
        },
      };
    },
    takes: ({ letter, replayCount }) => !left.has(letter) && replayCount < (sent.get(letter) ?? Infinity),
    changed: () => changed,
    stop: (why) => {
      stopped ??= why;
    },
    isOver: () => {
      if (isOver(signal) && changed < most) stopped ??= 'interrupted';
      return stopped !== undefined || changed >= most;
    },
    result: () => ({ changed, left: [...left.values()], ...(stopped === undefined ? {} : { stopped }) }),
  };
  return work;
}

let moves = 0;

function move(letter: Letter, actor: string, publisher: Publisher): Promise<Outcome> {
  if (letter.undecodable !== undefined)
    return Promise.resolve({
      kind: 'refused',
      detail: `its headers cannot be decoded (nested more than ${MAX_DEPTH} deep, or malformed): it would break the consumers of ${mailboxQueue(actor)} again`,
    });
  moves += 1;
  return publisher.publish(replayOf(letter, actor, `replay-${moves}`));
}

function faultOf(outcome: Exclude<Outcome, { kind: 'confirmed' | 'refused' }>, actor: string): string {
  const mailbox = mailboxQueue(actor);
  switch (outcome.kind) {
    case 'returned':
      return `there is no queue ${mailbox}: \`twinbox topology apply\` declares it`;
    case 'nacked':
      return `the broker does not take messages for ${mailbox}: it is full, or lacks a majority of its nodes`;
    case 'unknown':
      return `whether ${mailbox} has the last ones is not known (${outcome.detail}); their letters stay, and replayed again they count as duplicates`;
    case 'not-sent':
      return 'the channel to the broker is closed';
  }
}
