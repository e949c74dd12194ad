/** A command of the Procfile, ready to be started. */
export interface Launch {
  readonly file: string;
  readonly args: readonly string[];
  /** Settings that stand before the command: `TZ=UTC node …`. */
  readonly env: Readonly<Record<string, string>>;
}

/** Words that only a shell knows: no file of that name can be started. */
const SHELL_WORDS = new Set(
  '. : alias bg break builtin case cd command continue do elif else esac eval exit export fg fi for function if read readonly return set shift source then time trap type ulimit umask unalias unset until wait while'.split(
    ' ',
  ),
);
const ASSIGNMENT = /^([A-Za-z_][A-Za-z0-9_]*)=(.*)$/s;

/**
 * How to start a command: as a program of its own wherever no shell is needed to read it, so that a signal
 * reaches the program and the exit code is the program's; by `/bin/sh -c` otherwise, through `exec` where that
 * means the same. Plain words, quotes, `$NAME` and `${NAME}` need no shell.
 */
export function launchOf(command: string, env: NodeJS.ProcessEnv): Launch {
  const words = plainWords(command, env);
  if (words !== undefined) {
    const settings: Record<string, string> = {};
    for (let word = words[0]; word !== undefined; word = words[0]) {
      const [, name, value] = ASSIGNMENT.exec(word) ?? [];
      if (name === undefined || value === undefined) break;
      settings[name] = value;
      words.shift();
    }
    // `exec node …` is what other runners need; here it is what happens anyway.
    if (words[0] === 'exec' && words[1]?.startsWith('-') === false) words.shift();
    const [file, ...args] = words;
    if (file !== undefined && file !== '' && !SHELL_WORDS.has(file)) return { file, args, env: settings };
  }
  const exec = isSingleCommand(command) && !/^exec\s/.test(command) ? 'exec ' : '';
  return { file: '/bin/sh', args: ['-c', `${exec}${command}`], env: {} };
}

/** One program with its arguments and redirections; when in doubt it is not: `exec a && b` would lose b. */
function isSingleCommand(command: string): boolean {
  const withoutHarmless = command.replace(/[<>]&\d/g, '').replace(/\$\{[^}]*\}/g, '');
  const first = command.split(/\s/, 1)[0] ?? '';
  return !/[|&;()`\n{}!]/.test(withoutHarmless) && !SHELL_WORDS.has(first) && !ASSIGNMENT.test(first);
}

/** A piece of a word: 'single' · "double" · \x · $NAME or ${NAME} · what has no meaning for a shell. */
const PIECE =
  /'(?<single>[^']*)'|"(?<double>(?:[^"\\`$]|\\.|\$[A-Za-z_][A-Za-z0-9_]*|\$\{[A-Za-z_][A-Za-z0-9_]*\})*)"|\\(?<escaped>[^\n])|\$(?:(?<name>[A-Za-z_][A-Za-z0-9_]*)|\{(?<braced>[A-Za-z_][A-Za-z0-9_]*)\})|(?<plain>[^\s'"\\$`|&;<>()*?[\]{}~#!]+)|(?<blank>[ \t]+)/y;

/** The words of a command that needs no shell; undefined when it does (or may). */
export function plainWords(command: string, env: NodeJS.ProcessEnv): string[] | undefined {
  const words: string[] = [];
  let word: string | undefined;
  for (let at = 0; at < command.length; at = PIECE.lastIndex) {
    PIECE.lastIndex = at;
    const piece = PIECE.exec(command)?.groups;
    if (piece === undefined) return undefined;
    if (piece.blank !== undefined) {
      if (word !== undefined) words.push(word);
      word = undefined;
      continue;
    }
    const variable = piece.name ?? piece.braced;
    const value = variable === undefined ? undefined : (env[variable] ?? '');
    // Unquoted, an empty value removes a word and a blank makes two: the shell's rules, left to the shell.
    if (value !== undefined && (value === '' || /[\s*?[\]\\]/.test(value))) return undefined;
    word =
      (word ?? '') +
      (value ?? piece.single ?? piece.escaped ?? piece.plain ?? expandQuoted(piece.double ?? '', env));
  }
  if (word !== undefined) words.push(word);
  return words;
}

function expandQuoted(text: string, env: NodeJS.ProcessEnv): string {
  return text.replace(
    /\\([$`"\\])|\\\n|\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})/g,
    (_, escaped?: string, name?: string, braced?: string) => escaped ?? env[name ?? braced ?? ''] ?? '',
  );
}
