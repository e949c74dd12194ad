import { ConfigurationError } from '../runtime/errors.js';

/** One process type: a line of the Procfile. */
export interface ProcfileLine {
  readonly name: string;
  readonly command: string;
  /** Place among the types of the file, from 0; the ports of the type follow from it. */
  readonly index: number;
}

/** Platforms run it once per deploy; it is never part of a formation unless somebody names it. */
export const RELEASE = 'release';

const LINE = /^([A-Za-z0-9_-]+)[ \t]*:[ \t]*(\S.*)$/;

/**
 * The process types of a Procfile (`name: command` per line; blank lines, `#` comments and CRLF are fine).
 * Throws one ConfigurationError that names every bad line by its number.
 */
export function parseProcfile(text: string): ProcfileLine[] {
  const types: ProcfileLine[] = [];
  const lineOf = new Map<string, number>();
  const problems: string[] = [];
  for (const [index, raw] of text
    .replace(/^\uFEFF/, '')
    .split(/\r\n|\n|\r/)
    .entries()) {
    const number = index + 1;
    const line = raw.trim();
    if (line === '' || line.startsWith('#')) continue;
    const [, name, command] = LINE.exec(line) ?? [];
    // The line itself is not repeated: a command may carry a secret.
    if (name === undefined || command === undefined) {
      problems.push(`line ${number}: not of the form "name: command"`);
      continue;
    }
    const earlier = lineOf.get(name);
    if (name === 'all') problems.push(`line ${number}: "all" means every type in a formation; rename it`);
    else if (earlier !== undefined)
      problems.push(`line ${number}: "${name}" stands in line ${earlier} already`);
    else types.push({ name, command, index: types.length });
    lineOf.set(name, earlier ?? number);
  }
  if (problems.length > 0)
    throw new ConfigurationError(`the Procfile has bad lines\n  ${problems.join('\n  ')}`);
  if (types.length === 0)
    throw new ConfigurationError(
      'the Procfile names no process type; add a line such as "web: node dist/web/main.js"',
    );
  return types;
}
