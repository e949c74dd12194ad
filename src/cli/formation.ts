import { RELEASE, type ProcfileLine } from './procfile.js';

/** What was asked for cannot be done as it was written; the command ends with 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** One process that a formation asks for. */
export interface Instance {
  /** `notify.2`: the second instance of `notify`. */
  readonly name: string;
  readonly type: ProcfileLine;
  readonly port: number;
}

/** Ports that stand ready for each type, hence also the most instances of one. */
const PORTS_PER_TYPE = 100;

/**
 * How many of each process type run: `web=1,notify=3`. Types not named are not started, a name alone means 1,
 * `all=1,notify=3` sets every type but `release` first. Without a formation: one of each but `release`.
 * Throws a UsageError that tells every problem at once.
 */
export function parseFormation(
  text: string | undefined,
  types: readonly ProcfileLine[],
): Map<string, number> {
  const asked = askedCounts(text === undefined || text.trim() === '' ? 'all=1' : text, types);
  const counts = new Map<string, number>();
  for (const { name } of types) {
    const count = asked.get(name) ?? (name === RELEASE ? 0 : (asked.get('all') ?? 0));
    if (count > 0) counts.set(name, count);
  }
  if (counts.size === 0) throw new UsageError(`the formation "${text ?? 'all=1'}" starts no process`);
  return counts;
}

function askedCounts(text: string, types: readonly ProcfileLine[]): Map<string, number> {
  const known = new Set(['all', ...types.map(({ name }) => name)]);
  const asked = new Map<string, number>();
  const problems: string[] = [];
  for (const part of text.split(/[\s,]+/)) {
    if (part === '') continue;
    const [, name = '', digits = '1'] = /^([^=]+)(?:=(\d{1,6}))?$/.exec(part) ?? [];
    const count = Number(digits);
    if (name === '') problems.push(`"${part}" is not of the form name=count`);
    else if (!known.has(name)) problems.push(`no process type is called "${name}"`);
    else if (asked.has(name)) problems.push(`"${name}" is named twice`);
    else if (count > PORTS_PER_TYPE)
      problems.push(
        `${name}=${count}: at most ${PORTS_PER_TYPE} run under one runner (ports); start a second`,
      );
    asked.set(name, count);
  }
  if (problems.length > 0) {
    const names = types.map(({ name }) => name).join(', ');
    throw new UsageError(`${problems.join('; ')}. The Procfile has: ${names}`);
  }
  return asked;
}

/**
 * The port of instance 1, 2, … of a type: base + 100 × the type's place in the Procfile + instance − 1.
 * A base of 0 gives every process 0, which means "no port".
 */
export function portOf(basePort: number, typeIndex: number, instance: number): number {
  return basePort === 0 ? 0 : basePort + PORTS_PER_TYPE * typeIndex + instance - 1;
}

/** The processes of a formation, in the order of the Procfile. Throws a UsageError when the ports run out. */
export function instancesOf(
  types: readonly ProcfileLine[],
  counts: ReadonlyMap<string, number>,
  basePort: number,
): Instance[] {
  const instances = types.flatMap((type) =>
    Array.from({ length: counts.get(type.name) ?? 0 }, (_, index) => ({
      name: `${type.name}.${index + 1}`,
      type,
      port: portOf(basePort, type.index, index + 1),
    })),
  );
  const beyond = instances.find(({ port }) => port > 65_535);
  if (beyond !== undefined)
    throw new UsageError(
      `${beyond.name} would get port ${beyond.port}; choose a lower --port than ${basePort}`,
    );
  return instances;
}
