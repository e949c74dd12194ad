import { parseArgs } from 'node:util';

/** What `twinbox start …` was asked for; the rest of StartOptions is the caller's. */
export interface StartArgs {
  readonly procfile: string;
  readonly formation?: string;
  readonly envFile?: string;
  readonly restart: boolean;
  readonly timeoutMs: number;
  readonly raw: boolean;
  /** Absent: PORT of the environment, else 5000. */
  readonly basePort?: number;
}

/** The text to show instead of starting; with a problem the command ends with 2, without (--help) with 0. */
export interface StartUsage {
  readonly usage: string;
  readonly problem?: string;
}

const USAGE = `twinbox start [formation] [options]     run the process types of the Procfile

  twinbox start                     one of each, but release
  twinbox start web=1,notify=3      these, and no others
  twinbox start all=1,notify=3      one of each, but three of notify

  --restart           start a process that ended anew (1 s … 30 s) instead of stopping the others;
                      one that ends with 78 (wrong configuration) stops them in any case
  --timeout SECONDS   time to drain after a stop, then SIGKILL (28; longer than SHUTDOWN_TIMEOUT_MS)
  --raw               lines as the processes wrote them, without prefix and colour
  --port N            first port (PORT, else 5000): each type has 100, each instance the next
  --procfile FILE     (Procfile)
  --env FILE          settings that the shell does not have (.env, if it is there)

SIGINT, SIGTERM and SIGHUP stop all processes together: each gets one SIGTERM and drains. A second signal more
than 2 s after the first kills what is left.
Exit code: 0 stopped when told to · 1 not everything ended by itself, or with a fault, when it was stopped ·
2 usage · 78 wrong configuration · otherwise that of the process whose end stopped the others (signal: 128 + n).
`;

/** A process's own limit is 25 s, platforms kill after 30 s. */
const DEFAULT_TIMEOUT_S = 28;

/** Reads the arguments after `start`. Never throws. */
export function parseStartArgs(argv: readonly string[]): StartArgs | StartUsage {
  let parsed;
  try {
    parsed = parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: {
        restart: { type: 'boolean', default: false },
        timeout: { type: 'string', short: 't' },
        raw: { type: 'boolean', default: false },
        port: { type: 'string', short: 'p' },
        procfile: { type: 'string', short: 'f', default: 'Procfile' },
        env: { type: 'string', short: 'e' },
        help: { type: 'boolean', short: 'h', default: false },
      },
    });
  } catch (error) {
    return { usage: USAGE, problem: error instanceof Error ? error.message : String(error) };
  }
  const { values, positionals } = parsed;
  if (values.help) return { usage: USAGE };

  const timeoutS = number(values.timeout ?? String(DEFAULT_TIMEOUT_S), /^\d{1,5}(\.\d{1,3})?$/);
  if (timeoutS === undefined || timeoutS <= 0)
    return { usage: USAGE, problem: '--timeout takes seconds, more than 0' };
  const basePort = values.port === undefined ? undefined : number(values.port, /^\d{1,5}$/);
  if (values.port !== undefined && (basePort === undefined || basePort > 65_535))
    return { usage: USAGE, problem: '--port takes a whole number from 0 to 65535' };

  return {
    procfile: values.procfile,
    restart: values.restart,
    raw: values.raw,
    timeoutMs: Math.round(timeoutS * 1_000),
    ...(positionals.length === 0 ? {} : { formation: positionals.join(',') }),
    ...(values.env === undefined ? {} : { envFile: values.env }),
    ...(basePort === undefined ? {} : { basePort }),
  };
}

function number(text: string, form: RegExp): number | undefined {
  return form.test(text) ? Number(text) : undefined;
}
