import { pino, type DestinationStream, type Logger } from 'pino';
import { withoutSecrets } from './errors.js';

export type Log = Logger;

export interface LogOptions {
  readonly level: string;
  /** The process type and instance, as `relay.1`. */
  readonly process: string;
  readonly destination?: DestinationStream;
}

/**
 * JSON lines on standard output, with one name for each thing: `messageId`, `type`, `actor`, `attempt`.
 * Every string is scrubbed of URL credentials on its way out: an `ECONNREFUSED amqp://user:password@…`
 * comes from libraries that know nothing of secrets.
 */
export function createLog({ level, process: name, destination }: LogOptions): Log {
  const target = destination ?? pino.destination({ dest: 1, sync: true });
  return pino(
    {
      level,
      base: { service: 'twinbox', process: name },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: pino.stdSerializers.errWithCause },
    },
    { write: (line: string) => target.write(withoutSecrets(line)) },
  );
}

/** At most one line each `everyMs` for the same key: an outage must not fill the disk. */
export function sparsely(
  everyMs: number,
  now: () => number = Date.now,
): (key: string, write: () => void) => void {
  const last = new Map<string, number>();
  return (key, write) => {
    const before = last.get(key);
    if (before !== undefined && now() - before < everyMs) return;
    if (last.size > 1_000) last.clear();
    last.set(key, now());
    write();
  };
}
