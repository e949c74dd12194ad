import { readFileSync } from 'node:fs';
import { distance } from 'fastest-levenshtein';
import { z } from 'zod';
import { ConfigurationError } from './errors.js';
import { SETTINGS, type Config, type NeededName, type Setting, type SettingName } from './settings.js';

const NEEDED: readonly NeededName[] = [
  'DATABASE_URL',
  'RABBITMQ_URL',
  'REDIS_URL',
  'MONGODB_URI',
  'WEB_USER',
  'WEB_PASSWORD',
];

export interface ConfigOptions {
  /** Process type, for the message. */
  readonly process: string;
  /** Settings that belong to others (an actor's own), so that they are not taken for misspelt ones of ours. */
  readonly known?: readonly string[];
}

type Env = Readonly<Record<string, string | undefined>>;

/**
 * The configuration, read once from `env`, which wins over nothing and loses to nothing.
 * `NAME_FILE` names a file that holds the value (a mounted secret).
 * @throws {ConfigurationError} one message with every fault, never with a value
 */
export function readConfig<N extends NeededName>(
  env: Env,
  needs: readonly N[],
  options: ConfigOptions,
): Config<N> {
  const faults: string[] = [];
  const config: Record<string, unknown> = {};
  for (const name of Object.keys(SETTINGS) as SettingName[]) {
    const isNeeded = (needs as readonly string[]).includes(name);
    if (NEEDED.includes(name as NeededName) && !isNeeded) continue;
    const setting: Setting = SETTINGS[name];
    const raw = lookUp(env, name, setting, faults);
    if (raw === undefined && isNeeded) {
      faults.push(`${name} is missing (needed by: ${options.process}): ${setting.about}, ${setting.expects}`);
      continue;
    }
    const parsed = setting.schema.safeParse(raw);
    if (parsed.success) config[name] = parsed.data;
    else faults.push(`${name} must be ${setting.expects}${ownWords(parsed.error)}`);
  }
  faults.push(...misspelt(env, [...Object.keys(SETTINGS), ...(options.known ?? [])]));
  refuse(faults);
  return config as Config<N>;
}

/**
 * An actor's own settings, by its own schema, with the same manners.
 * @throws {ConfigurationError} one message with every fault, never with a value
 */
export function readOwnSettings<T>(env: Env, schema: z.ZodType<T>, owner: string): T {
  const names = schema instanceof z.ZodObject ? Object.keys(schema.shape) : [];
  const faults: string[] = [];
  const raw: Record<string, string> = {};
  for (const name of names) {
    const value = lookUp(env, name, {}, faults);
    if (value !== undefined) raw[name] = value;
  }
  const parsed = schema.safeParse(raw);
  if (!parsed.success) {
    for (const { path } of parsed.error.issues) {
      const name = path.join('.');
      faults.push(
        `${name} ${name in raw ? 'has a value that cannot be used' : 'is missing'} (needed by: ${owner})`,
      );
    }
  }
  refuse(faults);
  return parsed.data as T;
}

/** What a schema of ours says of a value, which it never repeats; a library's words may. */
function ownWords({ issues }: z.ZodError): string {
  const own = issues.filter(({ code, message }) => code === 'custom' && message !== 'Invalid input');
  return own.length === 0 ? '' : `: ${own.map(({ message }) => message).join('; ')}`;
}

function lookUp(
  env: Env,
  name: string,
  { aliases = [] }: Pick<Setting, 'aliases'>,
  faults: string[],
): string | undefined {
  const value = [name, ...aliases]
    .map((key) => env[key])
    .find((found) => found !== undefined && found !== '');
  const file = env[`${name}_FILE`];
  if (file === undefined || file === '') return value;
  if (value !== undefined) {
    faults.push(`${name} and ${name}_FILE are both set: keep one`);
    return value;
  }
  try {
    return readFileSync(file, 'utf8').trim();
  } catch (error) {
    faults.push(
      `${name}_FILE names a file that cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unknown'})`,
    );
    return undefined;
  }
}

/** Names that are ours by their first part, or nearly spelt like one of ours. */
function misspelt(env: Env, known: readonly string[]): string[] {
  const all = new Set(known.flatMap((name) => [name, `${name}_FILE`]));
  return Object.keys(env)
    .filter((name) => !all.has(name) && /^[A-Z][A-Z0-9_]{5,}$/.test(name))
    .flatMap((name) => {
      const [nearest, far] = known
        .map((candidate) => [candidate, distance(name, candidate)] as const)
        .reduce((best, next) => (next[1] < best[1] ? next : best));
      const looksLikeOurs = name.startsWith('TWINBOX_') || far <= (nearest.length > 8 ? 2 : 1);
      return looksLikeOurs ? [`${name} is not a setting; did you mean ${nearest}?`] : [];
    });
}

function refuse(faults: readonly string[]): void {
  if (faults.length === 0) return;
  throw new ConfigurationError(
    `${faults.length === 1 ? 'one fault' : `${faults.length} faults`} in the configuration:\n${faults.map((fault) => `  ✖ ${fault}`).join('\n')}`,
  );
}
