import { ConfigurationError } from '../runtime/errors.js';

const ASSIGNMENT = /^(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(.*)$/;
const ESCAPES: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t' };

/**
 * The settings of a `.env` file: `KEY=value`, `export KEY=value`, 'literal' and "with \n escapes" on one line,
 * `#` comments. A `#` inside an unquoted value belongs to it unless a space stands before it: a password must
 * not be cut in silence, as Node's own parser would. Nothing is expanded.
 * Throws one ConfigurationError with the numbers of all lines that cannot be read; never shows a value.
 */
export function parseEnvFile(text: string): Record<string, string> {
  const settings: Record<string, string> = {};
  const bad: number[] = [];
  for (const [index, raw] of text
    .replace(/^\uFEFF/, '')
    .split(/\r?\n/)
    .entries()) {
    const line = raw.trim();
    if (line === '' || line.startsWith('#')) continue;
    const [, key, written] = ASSIGNMENT.exec(line) ?? [];
    const value = written === undefined ? undefined : unquoted(written);
    if (key === undefined || value === undefined) bad.push(index + 1);
    else settings[key] = value;
  }
  if (bad.length > 0)
    throw new ConfigurationError(
      `the .env file cannot be read in line ${bad.join(', ')}: each line is KEY=value, on one line, ` +
        'with both quotes or none',
    );
  return settings;
}

function unquoted(written: string): string | undefined {
  const quote = written[0];
  if (quote !== '"' && quote !== "'") return written.replace(/(^|\s+)#.*$/, '');
  const [, single, double] = /^(?:'([^']*)'|"((?:[^"\\]|\\.)*)")\s*(?:#.*)?$/.exec(written) ?? [];
  return single ?? double?.replace(/\\(.)/g, (_, char: string) => ESCAPES[char] ?? char);
}

/** The first of two ports to count from that is given: PORT of the environment, else 5000. */
export function basePortOf(env: NodeJS.ProcessEnv): number {
  const written = env.PORT ?? '';
  if (written === '') return 5_000;
  const port = /^\d{1,5}$/.test(written) ? Number(written) : NaN;
  if (!(port <= 65_535)) throw new ConfigurationError('PORT is not a port: a whole number from 0 to 65535');
  return port;
}
