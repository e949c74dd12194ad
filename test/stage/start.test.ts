import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { isGone, makePlace, runRunner, type Place, type Runner } from '../support/start-runner.js';
import { until } from '../support/until.js';

let place: Place;
let runner: Runner | undefined;

const TWO = 'web: node child.mjs 1500 3\nnotify: node child.mjs 1500 3\n';

function run(procfile: string, args: string[] = [], files: Record<string, string> = {}): Runner {
  place = makePlace(procfile, files);
  runner = runRunner(place, args);
  return runner;
}

/** Every pid that a process of the test ever had: what the runner started, and what wrote itself down. */
const allPids = (): number[] =>
  place
    .states()
    .flatMap((change) => (change.state === 'started' ? [change.pid, ...place.pids(change.name)] : []));
const kindsOf = (name: string): string[] => place.events(name).map((event) => event.split(' ')[0] ?? '');

afterEach(async () => {
  if (runner?.alive() === true) {
    runner.signal('SIGUSR2');
    await runner.exit.catch(() => undefined);
  }
  const left = allPids().filter((pid) => !isGone(pid));
  for (const pid of left) process.kill(pid, 'SIGKILL');
  place.remove();
  runner = undefined;
  expect(left, 'pids left behind').toEqual([]);
});

describe('a signal', () => {
  it.each(['SIGTERM', 'SIGINT', 'SIGHUP'] as const)(
    '%s reaches each process once as SIGTERM, and more of them within 2 s shorten nothing',
    async (signal) => {
      const { exit, alive, ...it } = run(TWO);
      const names = ['web.1', 'notify.1'];
      const pids = await Promise.all(names.map((name) => place.up(name)));
      it.signal(signal);
      await until('both drain', () => names.every((name) => place.events(name).includes('SIGTERM')));
      expect([alive(), ...pids.map(isGone)]).toEqual([true, false, false]);
      it.signal(signal);
      it.signal('SIGINT');
      it.signal('SIGTERM');
      expect(await exit).toBe(0);
      expect(names.map(kindsOf)).toEqual([
        ['up', 'SIGTERM', 'drained'],
        ['up', 'SIGTERM', 'drained'],
      ]);
      expect(pids.map(isGone)).toEqual([true, true]);
    },
  );

  it('that comes again after more than 2 s kills what still drains', async () => {
    const { exit, ...it } = run('web: node child.mjs 60000 0\n', ['--timeout', '60']);
    const pid = await place.up('web.1');
    it.signal('SIGINT');
    await until('the drain began', () => place.events('web.1').includes('SIGTERM'));
    const began = Date.now();
    await until('2.1 s have passed', () => Date.now() - began > 2_100);
    expect(isGone(pid)).toBe(false);
    it.signal('SIGINT');
    expect(await exit).toBe(1);
    expect(Date.now() - began).toBeLessThan(10_000);
    expect(kindsOf('web.1')).toEqual(['up', 'SIGTERM']);
    expect(it.stderr()).toContain(`web.1 (pid ${pid}): SIGKILL, SIGINT came again`);
    expect(isGone(pid)).toBe(true);
  });

  it('ends a drain that takes too long at the time limit, with all that the process had started', async () => {
    const parent = `
      import { spawn } from 'node:child_process';
      import { writeFileSync } from 'node:fs';
      writeFileSync('grandchild', String(spawn('sleep', ['1000'], { stdio: 'ignore' }).pid));
      await import('./child.mjs');`;
    const { exit, ...it } = run(
      'web: node parent.mjs 60000 0\nnotify: node child.mjs 10 0\n',
      ['--timeout', '1'],
      { 'parent.mjs': parent },
    );
    const pid = await place.up('web.1');
    await place.up('notify.1');
    const grandchild = Number(readFileSync(join(place.cwd, 'grandchild'), 'utf8'));
    expect(isGone(grandchild)).toBe(false);
    const began = Date.now();
    it.signal('SIGTERM');
    expect(await exit).toBe(1);
    expect(Date.now() - began).toBeGreaterThanOrEqual(1_000);
    expect(kindsOf('web.1')).toEqual(['up', 'SIGTERM']);
    expect(kindsOf('notify.1')).toEqual(['up', 'SIGTERM', 'drained']);
    expect(it.stderr()).toContain(`web.1 (pid ${pid}): SIGKILL, not ended 1 s after SIGTERM`);
    await until('the grandchild is gone', () => isGone(grandchild));
  });

  it('reaches a program behind a shell, whose drain is waited for', async () => {
    const { exit, ...it } = run('web: node child.mjs 2000 0 && echo done; true\n');
    const pid = await place.up('web.1');
    const started = place.states().map((change) => (change.state === 'started' ? change.pid : 0));
    expect([started.length, started.includes(pid)]).toEqual([1, false]); // the shell stands between
    it.signal('SIGTERM');
    expect(await exit).toBe(0);
    expect(kindsOf('web.1')).toEqual(['up', 'SIGTERM', 'drained']);
  });
});

describe('a process that ends', () => {
  it.each([
    ['SIGUSR2', 3, 3],
    ['SIGUSR2', 0, 0],
    ['SIGUSR2', 78, 78],
    ['SIGKILL', 0, 137],
  ] as const)(
    '(%s, its code %i) makes the others drain, and the exit code %i',
    async (signal, code, expected) => {
      const { exit, ...it } = run(`web: node child.mjs 300 0\nnotify: node child.mjs 0 ${code}\n`);
      await place.up('web.1');
      const pid = await place.up('notify.1');
      expect(place.states()).toContainEqual({ state: 'started', name: 'notify.1', pid, port: 5_100 });
      process.kill(pid, signal);
      expect(await exit).toBe(expected);
      expect(kindsOf('web.1')).toEqual(['up', 'SIGTERM', 'drained']);
      expect(kindsOf('notify.1')).toEqual(['up']);
      expect(it.stderr()).toMatch(/notify\.1 (exited with|was ended by) \w+: stopping 1 process,/);
      expect(allPids().every(isGone)).toBe(true);
    },
  );

  it.each([[], ['--restart']])('leaves nothing behind that it had started %j', async (...args) => {
    const leaves = `
      import { spawn } from 'node:child_process';
      import { appendFileSync } from 'node:fs';
      appendFileSync('left', spawn('sleep', ['1000'], { stdio: 'inherit' }).pid + '\\n');
      process.exit(3);`;
    const { exit, ...it } = run('web: node leaves.mjs\n', args, { 'leaves.mjs': leaves });
    const left = (): number[] => readFileSync(join(place.cwd, 'left'), 'utf8').trim().split('\n').map(Number);
    if (args.length > 0) {
      await until('it is to be restarted', () => place.states().some(({ state }) => state === 'restarting'));
      expect(left().map(isGone)).toEqual([true]);
      it.signal('SIGTERM');
    }
    expect(await exit).toBe(args.length > 0 ? 0 : 3);
    expect(left().map(isGone)).toEqual([true]);
  });

  it('comes back with --restart after kill -9, while the others go on', async () => {
    const { exit, ...it } = run(TWO, ['--restart']);
    await place.up('notify.1');
    const first = await place.up('web.1');
    process.kill(first, 'SIGKILL');
    const second = await place.up('web.1', 2);
    expect([isGone(first), isGone(second), second === first]).toEqual([true, false, false]);
    expect(place.states()).toContainEqual({
      state: 'ended',
      name: 'web.1',
      code: 137,
      how: 'was ended by SIGKILL',
    });
    const waits = place.states().flatMap((change) => (change.state === 'restarting' ? [change.delayMs] : []));
    expect(waits).toHaveLength(1);
    expect(waits[0]).toBeGreaterThanOrEqual(1_000);
    expect(kindsOf('notify.1')).toEqual(['up']);
    it.signal('SIGTERM');
    expect(await exit).toBe(0);
    expect(kindsOf('web.1')).toEqual(['up', 'up', 'SIGTERM', 'drained']);
  });

  it('does not hold up a stop while it waits to be restarted', async () => {
    const { exit, ...it } = run('web: node child.mjs 0 3\n', ['--restart']);
    process.kill(await place.up('web.1'), 'SIGUSR2');
    await until('the wait began', () => place.states().some(({ state }) => state === 'restarting'));
    const began = Date.now();
    it.signal('SIGTERM');
    expect(await exit).toBe(0);
    expect(Date.now() - began).toBeLessThan(900); // the wait is a second or more
    expect(kindsOf('web.1')).toEqual(['up']);
  });

  it('with 78 is not restarted: nobody but the operator can mend it', async () => {
    const { exit } = run('web: node child.mjs 100 0\nnotify: node child.mjs 0 78\n', ['--restart']);
    await place.up('web.1');
    process.kill(await place.up('notify.1'), 'SIGUSR2');
    expect(await exit).toBe(78);
    expect(kindsOf('web.1')).toEqual(['up', 'SIGTERM', 'drained']);
    expect(place.states().filter(({ state }) => state === 'restarting')).toEqual([]);
  });

  it('because there is no such program, says so', async () => {
    const { exit, ...it } = run('web: node child.mjs 0 0\nnotify: no-such-program x\n');
    expect(await exit).toBe(127);
    expect(it.stderr()).toContain('notify.1 could not be started: there is no program "no-such-program"');
  });
});

describe('a formation', () => {
  it('starts what it names, each with its own port and name', async () => {
    const print = `console.log(JSON.stringify([process.env.PS, process.env.TWINBOX_PROCESS, process.env.PORT,
      process.env.FROM_FILE, process.env.PATH === 'from the file', process.argv[2]])); setInterval(() => {}, 1000);`;
    const { exit, ...it } = run(
      'web: node print.mjs $PORT\nrelay: node print.mjs\nnotify: node print.mjs "${PS}"\nrelease: false\n',
      ['web=1,notify=3', '--port', '6000', '--raw'],
      { 'print.mjs': print, '.env': 'FROM_FILE="a b"\nPATH=from the file\nPORT=1\n' },
    );
    const lines = await until('four lines', () => {
      const all = it.stdout().split('\n').slice(0, -1);
      return all.length >= 4 ? all : undefined;
    });
    expect(lines.sort().map((line) => JSON.parse(line) as unknown)).toEqual([
      ['notify.1', 'notify.1', '6200', 'a b', false, 'notify.1'],
      ['notify.2', 'notify.2', '6201', 'a b', false, 'notify.2'],
      ['notify.3', 'notify.3', '6202', 'a b', false, 'notify.3'],
      ['web.1', 'web.1', '6000', 'a b', false, '6000'],
    ]);
    it.signal('SIGTERM');
    expect(await exit).toBe(0); // they have no handler: SIGTERM itself ended them
  });

  it.each([
    ['an unknown name', TWO, ['web=1,notfy=2'], 2, 'no process type is called "notfy"'],
    ['bad lines', 'web: a\nweb: b\nx\n', [], 78, 'line 3'],
    ['no Procfile', TWO, ['-f', 'Nofile'], 78, 'Nofile'],
    ['no settings file', TWO, ['-e', 'no.env'], 78, 'no.env'],
  ])('with %s starts nothing', async (_, procfile, args, code, message) => {
    const { exit, ...it } = run(procfile, args);
    expect(await exit).toBe(code);
    expect(it.stderr()).toContain(message);
    expect(place.states()).toEqual([]);
  });
});

describe('the runner', () => {
  it('that ends by a fault of its own takes its processes along', async () => {
    const { exit, ...it } = run(TWO);
    const pids = [await place.up('web.1'), await place.up('notify.1')];
    it.process.kill('SIGUSR2');
    expect(await exit).toBe(9);
    await until('both are gone', () => pids.every(isGone));
    expect(kindsOf('web.1')).toEqual(['up', 'SIGTERM', 'drained']);
  });

  it('whose output nobody reads any more drains its processes and ends with 1', async () => {
    const { exit, ...it } = run(TWO);
    await place.up('web.1');
    await place.up('notify.1');
    it.process.stdout?.destroy();
    expect(await exit).toBe(1);
    expect(it.stderr()).toContain('the output cannot be written');
    expect(kindsOf('notify.1')).toEqual(['up', 'SIGTERM', 'drained']);
  });
});
