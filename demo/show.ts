import type { Progress } from './ledger.js';
import type { DemoResult } from './result.js';

/** Shows progress: one line that is drawn again on a terminal, a line a second elsewhere. */
export interface Display {
  line(text: string): void;
  progress(progress: Progress, expected: { sent: number; documents: number }): void;
  done(): void;
}

export function createDisplay(output: NodeJS.WriteStream): Display {
  const live = output.isTTY;
  let drawn = false;
  let last = 0;
  const clear = (): void => {
    if (drawn) output.write('\r\u001b[2K');
    drawn = false;
  };
  return {
    line: (text) => {
      clear();
      output.write(`${text}\n`);
    },
    progress: (progress, { sent, documents }) => {
      const text = [
        `delivered ${progress.sent}/${sent}`,
        `published ${progress.published}/${sent}`,
        `recorded ${progress.recorded}/${documents}`,
        `processed ${progress.processed}/${documents}`,
      ].join('  →  ');
      if (live) {
        clear();
        output.write(`  ${text}`);
        drawn = true;
      } else if (Date.now() - last >= 1_000) {
        last = Date.now();
        output.write(`  ${text}\n`);
      }
    },
    done: clear,
  };
}

export function resultLines(result: DemoResult): string[] {
  const rows: [string, string][] = [
    ['sent', String(result.sent)],
    ['published', String(result.published)],
    ['recorded', `${result.recorded}   (one document for each actor that subscribes)`],
    ['processed', String(result.processed)],
    ['effects', `${result.effects}   (mails received + deliveries counted)`],
    ['missing', named(result.missing)],
    ['extra', named(result.extra)],
    ['seconds', String(result.seconds)],
    ['commit → effect', `p50 ${result.p50Ms ?? '–'} ms, p99 ${result.p99Ms ?? '–'} ms`],
  ];
  return rows.map(([name, value]) => `  ${name.padEnd(16)}${value}`);
}

function named(ids: readonly string[]): string {
  if (ids.length === 0) return '0';
  return `${ids.length}: ${ids.slice(0, 10).join(', ')}${ids.length > 10 ? ', …' : ''}`;
}
