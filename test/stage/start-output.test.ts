import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { afterEach, describe, expect, it } from 'vitest';
import { start, type StartOptions, type StateChange } from '../../src/cli/start.js';
import { makePlace, type Place } from '../support/start-runner.js';
import { until } from '../support/until.js';

let place: Place;
afterEach(() => {
  place.remove();
});

/** An output that takes what it is given, or (while `stalled`) leaves it lying. */
class Collector extends Writable {
  stalled = false;
  bytes = 0;
  #chunks: Buffer[] = [];
  #pending: (() => void) | undefined;
  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#chunks.push(chunk);
    this.bytes += chunk.length;
    if (this.stalled) this.#pending = done;
    else done();
  }
  resume(): void {
    this.stalled = false;
    this.#pending?.();
    this.#pending = undefined;
  }
  text(): string {
    return Buffer.concat(this.#chunks).toString();
  }
  lines(): string[] {
    return this.text().split('\n').slice(0, -1);
  }
}

/** Asks whether the counter in a file has stopped counting for 400 ms. */
function standsStill(file: string): () => boolean {
  let last = '';
  let since = Date.now();
  return () => {
    const path = join(place.cwd, file);
    const now = existsSync(path) ? readFileSync(path, 'utf8') : '';
    if (now !== last || now === '') since = Date.now();
    last = now;
    return Date.now() - since > 400;
  };
}

interface Run {
  readonly stdout: Collector;
  readonly stderr: Collector;
  readonly states: StateChange[];
  stop(): void;
  readonly exit: Promise<number>;
}

function run(script: string, procfile: string, options: Partial<StartOptions> = {}): Run {
  place = makePlace(procfile, { 'script.mjs': script });
  const stopping = new AbortController();
  const stdout = new Collector();
  const stderr = new Collector();
  const states: StateChange[] = [];
  const exit = start({
    procfile: 'Procfile',
    cwd: place.cwd,
    env: process.env,
    restart: false,
    timeoutMs: 10_000,
    raw: false,
    basePort: 5_000,
    stdout,
    stderr,
    signal: stopping.signal,
    onState: (change) => states.push(change),
    ...options,
  });
  return { stdout, stderr, states, stop: () => stopping.abort(), exit };
}

describe('output', () => {
  it('carries a padded name before every line, and finishes the last one', async () => {
    const script = `process.stdout.write('one\\n\\ntwo'); process.stderr.write('oops')`;
    const { stdout, stderr, exit } = run(script, 'a: node script.mjs\n');
    expect(await exit).toBe(0);
    expect(stdout.text()).toBe('a.1     | one\na.1     | \na.1     | two\n');
    expect(stderr.lines()).toEqual(expect.arrayContaining(['a.1     | oops']) as string[]);
    expect(stderr.text()).toContain('twinbox | a.1 exited with 0: stopping');
  });

  it('is passed through untouched and in whole lines with --raw, however many write at once', async () => {
    const script = `
      const line = (i) => JSON.stringify({ by: process.env.PS, i, text: '€🙂é'.repeat(i % 97) }) + '\\n';
      const bytes = Buffer.from(Array.from({ length: 5000 }, (_, i) => line(i)).join(''));
      for (let at = 0; at < bytes.length; at += 8191)
        if (!process.stdout.write(bytes.subarray(at, at + 8191)))
          await new Promise((resolve) => process.stdout.once('drain', resolve));
      process.on('SIGTERM', () => process.exit(0));
      setInterval(() => {}, 1000);`;
    const { stdout, stop, exit } = run(script, 'a: node script.mjs\n', { raw: true, formation: 'a=3' });
    const lines = await until('all lines', () => (stdout.lines().length >= 15_000 ? stdout.lines() : false));
    stop();
    expect(await exit).toBe(0);
    const parsed = lines.map((line) => JSON.parse(line) as { by: string; i: number; text: string });
    expect(parsed.every(({ i, text }) => text === '€🙂é'.repeat(i % 97))).toBe(true);
    for (const by of ['a.1', 'a.2', 'a.3'])
      expect(parsed.filter((line) => line.by === by).map(({ i }) => i)).toEqual([...Array(5_000).keys()]);
  });

  it('that is not read makes the process wait, not the memory grow; a stop still drains', async () => {
    // writeSync blocks the process in the kernel, as a foreign program's write does: its signal handler cannot run.
    const script = `
      import { writeFileSync, writeSync } from 'node:fs';
      process.on('SIGTERM', () => { writeFileSync('drained', ''); process.exit(0); });
      const line = 'x'.repeat(1023) + '\\n';
      const more = () => { writeSync(1, line); writeFileSync('written', String(++count)); setImmediate(more); };
      let count = 0;
      more();`;
    const output = new Collector();
    output.stalled = true;
    const { states, stop, exit } = run(script, 'a: node script.mjs\n', { stdout: output });
    await until('the process is blocked in a write', standsStill('written'));
    expect(output.bytes + output.writableLength).toBeLessThan(500_000);

    const before = output.bytes;
    output.resume();
    await until('it flows again', () => output.bytes > before + 2_000_000);

    output.stalled = true;
    await until('it is blocked again', standsStill('written'));
    stop();
    expect(await exit).toBe(0);
    expect(existsSync(join(place.cwd, 'drained'))).toBe(true);
    expect(states.map(({ state }) => state)).toEqual(['started', 'stopping', 'ended']);
  });

  it('and signals belong to others again when the run is over', async () => {
    const signals = ['SIGINT', 'SIGTERM', 'SIGHUP', 'exit'] as const;
    const before = signals.map((name) => process.listenerCount(name));
    const { stdout, stderr, states, stop, exit } = run('setInterval(() => {}, 1000)', 'a: node script.mjs\n');
    await until('it has started', () => states.length > 0);
    expect(signals.map((name) => process.listenerCount(name))).toEqual(before.map((count) => count + 1));
    stop();
    expect(await exit).toBe(0);
    expect(signals.map((name) => process.listenerCount(name))).toEqual(before);
    expect([stdout, stderr].map((out) => out.listenerCount('error') + out.listenerCount('drain'))).toEqual([
      0, 0,
    ]);
  });
});
