import type { Readable } from 'node:stream';

/** No line is longer: what never ends a line must not fill the memory. */
const MAX_LINE_BYTES = 1_048_576;
/** How long a stopping formation waits for a reader that does not read, before it drops output. */
const STALLED_MS = 1_000;
const NEWLINE = 0x0a;
const COLORS = [36, 33, 32, 35, 34, 96, 93, 92, 95, 94] as const;

/** One output of the runner, shared by all processes: whole lines only, and no faster than it is read. */
export interface Sink {
  /** Settles when more may be written. Never rejects; after a broken pipe everything is dropped. */
  write(bytes: Uint8Array): Promise<void> | undefined;
  /**
   * From now on a reader that has stalled for a second loses lines: a process that is blocked on its output
   * could not drain, and what it has in flight is worth more than a log line.
   */
  hurry(): void;
  /** Waits for what was written to be taken (a second at most), and lets go of the stream. */
  close(): Promise<void>;
}

export function createSink(out: NodeJS.WritableStream, onBroken: (error: Error) => void): Sink {
  let open = true;
  let full = false;
  let hurried = false;
  let stalled: NodeJS.Timeout | undefined;
  let waiting: { promise: Promise<void>; resolve: () => void } | undefined;

  const release = (): void => {
    clearTimeout(stalled);
    stalled = undefined;
    waiting?.resolve();
    waiting = undefined;
  };
  const onDrain = (): void => {
    full = false;
    release();
  };
  const onError = (error: Error): void => {
    if (!open) return;
    open = false;
    release();
    onBroken(error);
  };
  const boundTheWait = (): void => {
    if (hurried && waiting !== undefined) stalled ??= setTimeout(release, STALLED_MS);
  };
  out.on('drain', onDrain);
  out.on('error', onError);

  return {
    write(bytes) {
      if (!open) return undefined;
      if (full && hurried && waiting === undefined) return undefined;
      if (out.write(bytes)) return undefined;
      full = true;
      if (waiting === undefined) {
        let resolve = (): void => undefined;
        const promise = new Promise<void>((done) => {
          resolve = done;
        });
        waiting = { promise, resolve };
      }
      boundTheWait();
      return waiting.promise;
    },
    hurry() {
      hurried = true;
      boundTheWait();
    },
    async close() {
      if (open)
        await new Promise<void>((resolve) => {
          const timer = setTimeout(resolve, STALLED_MS);
          out.write('', () => {
            clearTimeout(timer);
            resolve();
          });
        });
      open = false;
      release();
      out.off('drain', onDrain);
      // A write that is still pending may fail later; without a listener that would end the process.
      if (!full) out.off('error', onError);
    },
  };
}

/** Cuts bytes into lines (each with its newline); what is left of a line waits for the rest of it. */
export interface LineCutter {
  push(chunk: Buffer): Buffer[];
  /** The unfinished last line, given its newline. */
  end(): Buffer[];
}

export function createLineCutter(maxLineBytes = MAX_LINE_BYTES): LineCutter {
  let rest: Buffer[] = [];
  let restBytes = 0;
  const take = (tail: Buffer): Buffer => {
    const line = rest.length === 0 ? tail : Buffer.concat([...rest, tail]);
    rest = [];
    restBytes = 0;
    return line;
  };
  return {
    // A newline byte is never part of a longer UTF-8 character, so bytes can be cut there undecoded.
    push(chunk) {
      const lines: Buffer[] = [];
      let from = 0;
      for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, from)) {
        lines.push(take(chunk.subarray(from, at + 1)));
        from = at + 1;
      }
      if (from < chunk.length) {
        rest.push(chunk.subarray(from));
        restBytes += chunk.length - from;
      }
      while (restBytes > maxLineBytes) {
        const all = take(Buffer.alloc(0));
        const cut = characterStart(all, maxLineBytes);
        lines.push(Buffer.concat([all.subarray(0, cut), Buffer.of(NEWLINE)]));
        rest = [all.subarray(cut)];
        restBytes = all.length - cut;
      }
      return lines;
    },
    end: () => (restBytes === 0 ? [] : [take(Buffer.of(NEWLINE))]),
  };
}

/** The last place at or before `at` where a UTF-8 character begins. */
function characterStart(bytes: Buffer, at: number): number {
  for (let start = at; start > at - 4 && start > 0; start -= 1)
    if (((bytes[start] ?? 0) & 0xc0) !== 0x80) return start;
  return at;
}

/**
 * Carries a process's output to the sink line by line, each behind the prefix, until it ends. While the sink
 * is full nothing is read, so the process itself waits. Never rejects.
 */
export async function pumpLines(source: Readable, sink: Sink, prefix: string): Promise<void> {
  const cutter = createLineCutter();
  const before = Buffer.from(prefix);
  const send = async (lines: readonly Buffer[]): Promise<void> => {
    if (lines.length > 0) await sink.write(Buffer.concat(lines.flatMap((line) => [before, line])));
  };
  try {
    for await (const chunk of source) await send(cutter.push(chunk as Buffer));
  } catch {
    // The pipe was torn down with its process; what came through it is written below.
  }
  await send(cutter.end());
}

/** `notify.2 | `, padded to `width` and in the colour of its type. */
export function prefixOf(name: string, { width, color }: { width: number; color?: number }): string {
  const text = `${name.padEnd(width)} | `;
  if (color === undefined) return text;
  return `\u001b[${COLORS[color % COLORS.length] ?? 0}m${text}\u001b[0m`;
}

/** Colour is for people: a terminal, and nobody who asked for none (https://no-color.org). */
export function wantsColor(out: NodeJS.WritableStream, env: NodeJS.ProcessEnv): boolean {
  return 'isTTY' in out && out.isTTY === true && (env.NO_COLOR ?? '') === '';
}
