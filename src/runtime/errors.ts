/** Exit code of a fault that a restart cannot cure (sysexits EX_CONFIG). */
export const EXIT_CONFIG = 78;

/** What the operator has to change before this can run. The process ends with 78 and no stack trace. */
export class ConfigurationError extends Error {
  override readonly name = 'ConfigurationError';
}

/** A start that was given up because the process has to stop: nothing failed. */
export class StoppedEarly extends Error {
  override readonly name = 'StoppedEarly';
}

/** Whatever was thrown, as an Error: `throw undefined`, a string or a plain object too. */
export function toError(thrown: unknown): Error {
  if (thrown instanceof Error) return thrown;
  return Object.assign(new Error(printable(thrown)), { name: 'NonError' });
}

function printable(thrown: unknown): string {
  if (typeof thrown === 'string') return thrown;
  try {
    const json = JSON.stringify(thrown) as string | undefined; // undefined for undefined, functions, symbols
    return json ?? String(thrown);
  } catch {
    return Object.prototype.toString.call(thrown);
  }
}

/**
 * Credentials of a URL never reach a log, an error text or a stored document. Bounded and without overlap: on a
 * long run of letters the time must not grow with its square.
 */
export function withoutSecrets(text: string): string {
  return text.replace(/([a-z][a-z0-9+.-]{0,30}:\/\/)[^\s/@":]*:[^\s/"]*@/gi, '$1***@');
}

/** `name: message`, on one line, without secrets, at most `maxLength` characters. */
export function describe(thrown: unknown, maxLength = 500): string {
  const error = toError(thrown);
  const text = error.message === '' ? codeOf(error) : error.message;
  return withoutSecrets(`${error.name}: ${text}`).replace(/\s+/g, ' ').slice(0, maxLength);
}

/** AggregateError of a refused connection has an empty message; its code says what happened. */
function codeOf(error: Error): string {
  return 'code' in error && typeof error.code === 'string' ? error.code : 'no message';
}
