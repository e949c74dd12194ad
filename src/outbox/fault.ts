/** One thing about an event that cannot be, and what to do about it. Never holds a value of the event. */
export interface EventFault {
  /** Where, as `key`, `headers.CC` or `body.items[2].price`. */
  readonly at: string;
  /** Completes the sentence "`at` …". */
  readonly problem: string;
  /** What to do. */
  readonly fix: string;
}

/** A message names so many; `faults` has them all. */
const TOLD = 20;

/**
 * The event cannot be sent, or would arrive as something else. Nothing was written, and no statement was sent: the
 * transaction is as it was. A TypeError, since the same event is refused every time.
 */
export class InvalidEventError extends TypeError {
  override readonly name = 'InvalidEventError';
  readonly faults: readonly EventFault[];

  constructor(faults: readonly EventFault[]) {
    const told = faults.slice(0, TOLD).map(({ at, problem, fix }) => `\n- ${at} ${problem}: ${fix}`);
    const more = faults.length > TOLD ? `\n- and ${faults.length - TOLD} more` : '';
    super(`the event was not written:${told.join('')}${more}`);
    this.faults = faults;
  }
}

/** `path.name`, or `path["odd name"]` where the name would be misread. */
export function below(path: string, name: string): string {
  if (/^[A-Za-z_$][\w$-]*$/.test(name)) return `${path}.${name}`;
  return `${path}[${JSON.stringify(name.length > 60 ? `${name.slice(0, 60)}…` : name)}]`;
}

/** As it reads after "is". */
export function kindOf(value: unknown): string {
  if (value === undefined || value === null) return String(value);
  if (typeof value !== 'object') return `a ${typeof value}`;
  if (Array.isArray(value)) return 'an array';
  const name = (value as { constructor?: { name?: unknown } }).constructor?.name;
  return typeof name === 'string' && name !== 'Object' && name !== '' ? `a ${name}` : 'an object';
}

/**
 * What keeps a value from being text in Postgres (and in AMQP, whose short strings end at 255 bytes), if anything.
 * @param maxBytes in UTF-8: one character may have four
 */
export function textFault(at: string, value: unknown, maxBytes: number): EventFault | undefined {
  if (typeof value !== 'string') return { at, problem: `is ${kindOf(value)}`, fix: 'give a string' };
  if (value === '') return { at, problem: 'is empty', fix: 'give it at least one character' };
  const bytes = Buffer.byteLength(value);
  if (bytes > maxBytes)
    return { at, problem: `has ${bytes} bytes in UTF-8, more than ${maxBytes}`, fix: 'shorten it' };
  return characterFault(at, value);
}

/** Characters that Postgres refuses, or that would be replaced on the way so that two different texts become one. */
export function characterFault(at: string, value: string): EventFault | undefined {
  if (value.includes('\0'))
    return {
      at,
      problem: 'contains the character U+0000, which Postgres text cannot hold',
      fix: 'remove it',
    };
  if (/\p{Surrogate}/u.test(value))
    return { at, problem: 'contains half of a surrogate pair', fix: 'give whole characters' };
  return undefined;
}
