import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { instancesOf, parseFormation, portOf, UsageError } from '../../src/cli/formation.js';
import { parseProcfile } from '../../src/cli/procfile.js';
import { parseStartArgs } from '../../src/cli/start-args.js';
import { launchOf, plainWords } from '../../src/cli/start-command.js';
import { basePortOf, parseEnvFile } from '../../src/cli/start-env.js';
import { createLineCutter, prefixOf, wantsColor } from '../../src/cli/start-output.js';
import { nextRestart } from '../../src/cli/start-plan.js';
import { ConfigurationError } from '../../src/runtime/errors.js';

const TYPES = parseProcfile('web: w\nrelay: r\nnotify: n\nrelease: m\n');

/** The error that `run` throws, of the class it has to be. */
function errorOf<E extends Error>(kind: new (...args: never[]) => E, run: () => unknown): E {
  try {
    run();
  } catch (error) {
    if (error instanceof kind) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}

describe('parseProcfile', () => {
  it('reads names and commands, whatever the line ends, blanks and comments', () => {
    const text = '\uFEFF# types\r\nweb: node dist/web/main.js\r\n\r\n  \t \r\nnotify_2:node x  # stays  \r\n';
    expect(parseProcfile(text)).toEqual([
      { name: 'web', command: 'node dist/web/main.js', index: 0 },
      { name: 'notify_2', command: 'node x  # stays', index: 1 },
    ]);
  });

  it('names every bad line in one message, and repeats none of them', () => {
    const text = 'web: a\nnonsense secret\nweb: b\n\nrelay:\nall: c\n: d\nweb: e';
    const { message } = errorOf(ConfigurationError, () => parseProcfile(text));
    expect(message.split('\n').slice(1)).toEqual([
      '  line 2: not of the form "name: command"',
      '  line 3: "web" stands in line 1 already',
      '  line 5: not of the form "name: command"',
      '  line 6: "all" means every type in a formation; rename it',
      '  line 7: not of the form "name: command"',
      '  line 8: "web" stands in line 1 already',
    ]);
    expect(message).not.toContain('secret');
  });

  it.each(['', '\n \n', '# nothing'])('refuses a file without a type: %j', (text) => {
    expect(errorOf(ConfigurationError, () => parseProcfile(text)).message).toContain('no process type');
  });
});

describe('parseFormation', () => {
  it.each<[string | undefined, Record<string, number>]>([
    [undefined, { web: 1, relay: 1, notify: 1 }],
    ['', { web: 1, relay: 1, notify: 1 }],
    ['web=1,notify=3', { web: 1, notify: 3 }],
    ['notify', { notify: 1 }],
    ['web=2, relay', { web: 2, relay: 1 }],
    ['web=0,relay=2', { relay: 2 }],
    ['all=1,notify=3', { web: 1, relay: 1, notify: 3 }],
    ['notify=0,all=2', { web: 2, relay: 2 }],
    ['release', { release: 1 }],
    ['all=1,release=1', { web: 1, relay: 1, notify: 1, release: 1 }],
    ['notify=100', { notify: 100 }],
  ])('%j', (text, counts) => {
    expect(Object.fromEntries(parseFormation(text, TYPES))).toEqual(counts);
  });

  it.each([
    ['web=1,notfy=3,wbe', 'no process type is called "notfy"; no process type is called "wbe"'],
    ['web=x', '"web=x" is not of the form name=count'],
    ['web=-1', '"web=-1" is not of the form'],
    ['=2', '"=2" is not of the form'],
    ['web=1,web=2', '"web" is named twice'],
    ['notify=101', 'notify=101: at most 100'],
    ['web=0', 'starts no process'],
  ])('refuses %j', (text, message) => {
    expect(errorOf(UsageError, () => parseFormation(text, TYPES)).message).toContain(message);
  });

  it('names the types there are', () => {
    expect(errorOf(UsageError, () => parseFormation('x', TYPES)).message).toContain(
      'The Procfile has: web, relay, notify, release',
    );
  });
});

describe('ports', () => {
  it.each([
    [5_000, 0, 1, 5_000],
    [5_000, 1, 1, 5_100],
    [5_000, 1, 2, 5_101],
    [3_000, 6, 100, 3_699],
    [0, 4, 7, 0],
  ])('base %i, type %i, instance %i: %i', (base, type, instance, port) => {
    expect(portOf(base, type, instance)).toBe(port);
  });

  it('names instances in the order of the file and keeps the place of types that are not started', () => {
    const instances = instancesOf(TYPES, parseFormation('notify=2,web', TYPES), 5_000);
    expect(instances.map(({ name, port }) => [name, port])).toEqual([
      ['web.1', 5_000],
      ['notify.1', 5_200],
      ['notify.2', 5_201],
    ]);
  });

  it('refuses a base that leads past the last port', () => {
    const counts = parseFormation('notify=2', TYPES);
    expect(instancesOf(TYPES, counts, 65_334).at(-1)?.port).toBe(65_535);
    expect(errorOf(UsageError, () => instancesOf(TYPES, counts, 65_335)).message).toContain('notify.2');
  });

  it.each([
    [{}, 5_000],
    [{ PORT: '' }, 5_000],
    [{ PORT: '8080' }, 8_080],
    [{ PORT: '0' }, 0],
  ])('counts from PORT: %j', (env, port) => expect(basePortOf(env)).toBe(port));

  it.each(['x', '-1', '65536', '80.5'])('refuses PORT=%s', (PORT) => {
    expect(() => basePortOf({ PORT })).toThrow(ConfigurationError);
  });
});

describe('parseEnvFile', () => {
  it.each([
    ['A=1', { A: '1' }],
    ['A=1\r\nexport B = two words \r\n', { A: '1', B: 'two words' }],
    ['# c\n\n  A=\n', { A: '' }],
    ["A='x # $Y \\n'", { A: 'x # $Y \\n' }],
    ['A="x # \\n \\"q\\" \\\\" # c', { A: 'x # \n "q" \\' }],
    ['A=amqp://u:p#w@h/?a=b', { A: 'amqp://u:p#w@h/?a=b' }],
    ['A=v # c', { A: 'v' }],
    ['A=# c', { A: '' }],
    ['A=1\nA=2', { A: '2' }],
  ])('%j', (text, settings) => expect(parseEnvFile(text)).toEqual(settings));

  it('names all lines that it cannot read, and no value', () => {
    const text = 'A=1\nno assignment hush\nB="hush\n1X=hush\nC="x"hush';
    const { message } = errorOf(ConfigurationError, () => parseEnvFile(text));
    expect(message).toContain('line 2, 3, 4, 5');
    expect(message).not.toContain('hush');
  });
});

describe('launchOf', () => {
  const env = { PATH: process.env.PATH, PORT: '5100', NAME: 'n', EMPTY: '', SPACED: 'a b', STAR: '*' };

  it.each([
    ['node dist/runner/main.js notify', ['node', 'dist/runner/main.js', 'notify']],
    ['exec node a.js', ['node', 'a.js']],
    ['node a.js --port=$PORT "${NAME}:$PORT" \'$PORT\'', ['node', 'a.js', '--port=5100', 'n:5100', '$PORT']],
    ['node -e "f(\\"x\\")" \'a; b | c\'', ['node', '-e', 'f("x")', 'a; b | c']],
    ['node a\\ b "$SPACED" "$EMPTY" \'\'', ['node', 'a b', 'a b', '', '']],
  ])('starts %j without a shell', (command, [file, ...args]) => {
    expect(launchOf(command, env)).toEqual({ file, args, env: {} });
  });

  it('takes settings before the command', () => {
    const launch = launchOf('TZ=UTC A="x $NAME" exec node a.js B=c', env);
    expect(launch).toEqual({
      file: 'node',
      args: ['a.js', 'B=c'],
      env: { TZ: 'UTC', A: 'x n' },
    });
  });

  it.each([
    ['node a.js > log 2>&1', 'exec node a.js > log 2>&1'],
    ['node a.js ${PORT:-1}', 'exec node a.js ${PORT:-1}'],
    ['node a.js *.txt', 'exec node a.js *.txt'],
    ['node a.js $EMPTY', 'exec node a.js $EMPTY'],
    ['node a.js $SPACED $STAR', 'exec node a.js $SPACED $STAR'],
    ['exec node a.js > log', 'exec node a.js > log'],
    ['node a.js && node b.js', 'node a.js && node b.js'],
    ['node a.js | tee log', 'node a.js | tee log'],
    ['node a.js; node b.js', 'node a.js; node b.js'],
    ['node a.js $(cat args)', 'node a.js $(cat args)'],
    ['TZ=UTC node a.js > log', 'TZ=UTC node a.js > log'],
    ['cd examples && node a.js', 'cd examples && node a.js'],
    ['ulimit -n 1000', 'ulimit -n 1000'],
    ["node 'a", "exec node 'a"],
  ])('leaves %j to the shell', (command, script) => {
    expect(launchOf(command, env)).toEqual({ file: '/bin/sh', args: ['-c', script], env: {} });
  });

  it.each([
    'a "b c" \'d e\' f\\ g',
    '$NAME-"$SPACED"-${PORT}x "" \'\'',
    '"\\$NAME \\" \\\\ \\x" \'\\n\'',
    'x=$PORT,%,@,:,+,/,^ "a;b|c&d" \'`$(x)`\'',
    '\\$NAME "$MISSING" "${EMPTY}z"',
  ])('reads %j as a shell does', (words) => {
    const shell = spawnSync('/bin/sh', ['-c', `printf '%s\\0' ${words}`], { env, encoding: 'utf8' });
    expect(plainWords(words, env)).toEqual(shell.stdout.split('\0').slice(0, -1));
  });
});

describe('nextRestart', () => {
  it.each([
    [0, 0, 0, 1, 1_000],
    [0, 0, 1, 1, 2_000],
    [1, 500, 0, 2, 2_000],
    [3, 59_999, 1, 4, 16_000],
    [4, 0, 1, 5, 30_000],
    [500, 0, 0, 501, 15_000],
    [500, 60_000, 0, 1, 1_000],
  ])('after %i failures and a run of %i ms (random %d)', (failures, ranMs, random, now, delayMs) => {
    expect(nextRestart(failures, ranMs, random)).toEqual({ failures: now, delayMs });
  });
});

describe('parseStartArgs', () => {
  const defaults = { procfile: 'Procfile', restart: false, raw: false, timeoutMs: 28_000 };
  it.each([
    [[], defaults],
    [['web=1,notify=3'], { ...defaults, formation: 'web=1,notify=3' }],
    [['web=1', 'notify'], { ...defaults, formation: 'web=1,notify' }],
    [
      ['all=1', '--restart', '--timeout', '2.5', '--raw', '--port', '6000'],
      { ...defaults, formation: 'all=1', restart: true, raw: true, timeoutMs: 2_500, basePort: 6_000 },
    ],
    [['-f', 'P', '-e', 'x.env', '-p', '0'], { ...defaults, procfile: 'P', envFile: 'x.env', basePort: 0 }],
  ])('%j', (argv, parsed) => expect(parseStartArgs(argv)).toEqual(parsed));

  it.each([
    [['--timeout', 'soon'], '--timeout takes seconds'],
    [['--timeout', '0'], '--timeout takes seconds'],
    [['--port', '65536'], '--port takes'],
    [['--restrat'], '--restrat'],
  ])('shows the usage for %j', (argv, problem) => {
    expect(parseStartArgs(argv)).toMatchObject({
      usage: expect.stringContaining('twinbox start') as string,
      problem: expect.stringContaining(problem) as string,
    });
  });

  it('shows the usage without a problem for --help', () => {
    expect(Object.keys(parseStartArgs(['--help']))).toEqual(['usage']);
  });
});

describe('output', () => {
  const lines = (chunks: Buffer[], maxLineBytes?: number): string[] => {
    const cutter = createLineCutter(maxLineBytes);
    return [...chunks.flatMap((chunk) => cutter.push(chunk)), ...cutter.end()].map(String);
  };

  it('puts lines together, wherever the pipe cut them: inside a character too', () => {
    const text = 'één\n\nzwölf €uro\r\n{"a":"🙂"}\nlast';
    const bytes = Buffer.from(text);
    for (let size = 1; size <= bytes.length; size += 1) {
      const chunks: Buffer[] = [];
      for (let at = 0; at < bytes.length; at += size) chunks.push(bytes.subarray(at, at + size));
      expect(lines(chunks)).toEqual(['één\n', '\n', 'zwölf €uro\r\n', '{"a":"🙂"}\n', 'last\n']);
    }
  });

  it('cuts a line that never ends, between two characters', () => {
    expect(lines([Buffer.from('aé'.repeat(4)), Buffer.from('b\nc')], 5)).toEqual([
      'aéa\n',
      'éaé\n',
      'aéb\n',
      'c\n',
    ]);
    expect(lines([Buffer.from('x'.repeat(25))], 10)).toEqual(
      ['x'.repeat(10), 'x'.repeat(10), 'xxxxx'].map((l) => `${l}\n`),
    );
  });

  it('pads the prefix, and colours it by type', () => {
    expect(prefixOf('web.1', { width: 8 })).toBe('web.1    | ');
    expect(prefixOf('web.1', { width: 5, color: 10 })).toBe('\u001b[36mweb.1 | \u001b[0m');
  });

  it('has colour on a terminal alone, and not against NO_COLOR', () => {
    const terminal = Object.assign(Object.create(process.stdout) as NodeJS.WriteStream, { isTTY: true });
    const pipe = Object.assign(Object.create(process.stdout) as NodeJS.WriteStream, { isTTY: false });
    expect([wantsColor(terminal, {}), wantsColor(terminal, { NO_COLOR: '1' }), wantsColor(pipe, {})]).toEqual(
      [true, false, false],
    );
  });
});
