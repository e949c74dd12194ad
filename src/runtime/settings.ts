import { z } from 'zod';
import { brokerAddressFaults } from './broker-addresses.js';
import { DEFAULT_MAX_BODY_BYTES, LARGEST_MAX_BODY_BYTES } from './limits.js';

/** One setting: its schema, what it is, what it must look like. `secret` values are shown to nobody. */
export interface Setting<T = unknown> {
  readonly schema: z.ZodType<T>;
  readonly about: string;
  /** Completes the sentence "NAME must be …". */
  readonly expects: string;
  readonly example?: string;
  readonly secret?: boolean;
  /** Names that platforms give the same thing; the first that is set counts. */
  readonly aliases?: readonly string[];
}

const setting = <T>(definition: Setting<T>): Setting<T> => definition;

const address = (
  about: string,
  protocols: string,
  example: string,
  aliases: string[] = [],
): Setting<string> =>
  setting({
    schema: z.url({ protocol: new RegExp(`^(${protocols})$`) }),
    about,
    expects: `an address like ${example}`,
    example,
    secret: true,
    aliases,
  });

const whole = (about: string, unit: string, min: number, max: number, preset: number): Setting<number> =>
  setting({
    schema: z
      .string()
      .regex(/^\d+$/)
      .transform(Number)
      .pipe(z.number().int().min(min).max(max))
      .default(preset),
    about,
    expects: `a whole number from ${min} to ${max} (${unit})`,
    example: String(preset),
  });

/** Some platforms hand line ends over as a backslash and an n. */
const pem = (about: string, label: 'CERTIFICATE' | 'PRIVATE KEY'): Setting<string | undefined> =>
  setting({
    schema: z
      .string()
      .transform((text) => text.replaceAll('\\n', '\n'))
      .refine(
        (text) => new RegExp(`-----BEGIN ([A-Z]+ )?${label}-----`).test(text) && !text.includes('ENCRYPTED'),
      )
      .optional(),
    about,
    expects: `PEM text with -----BEGIN ${label}-----${label === 'PRIVATE KEY' ? ', not encrypted' : ''}`,
    secret: true,
  });

/** Milliseconds of a day; no timer of Node takes more than 2^31 − 1. */
const DAY_MS = 86_400_000;

export const SETTINGS = {
  DATABASE_URL: address(
    'Postgres that holds the outbox; a direct or session-mode connection',
    'postgres|postgresql',
    'postgres://user:password@127.0.0.1:5432/app',
  ),
  RABBITMQ_URL: setting({
    schema: z.string().superRefine((list, { addIssue }) => {
      for (const fault of brokerAddressFaults(list)) addIssue({ code: 'custom', message: fault });
    }),
    about:
      'the broker and its virtual host; several nodes of a cluster with commas between (docs/topology.md)',
    expects: 'an address like amqp://user:password@127.0.0.1:5672/vhost, or several with commas between',
    example: 'amqp://user:password@127.0.0.1:5672/vhost',
    secret: true,
    aliases: ['AMQP_URL', 'CLOUDAMQP_URL'],
  }),
  REDIS_URL: address(
    'Redis for BullMQ; noeviction, append-only file on',
    'redis|rediss',
    'redis://:password@127.0.0.1:6379/0',
  ),
  MONGODB_URI: address(
    'MongoDB replica set and the database that holds the inbox',
    'mongodb|mongodb\\+srv',
    'mongodb://user:password@127.0.0.1:27017/twinbox?replicaSet=rs0',
    ['MONGO_URL'],
  ),

  RABBITMQ_CA: pem(
    "certificate authorities that the broker is checked by, instead of the system's; for amqps",
    'CERTIFICATE',
  ),
  RABBITMQ_CERT: pem(
    'our own certificate, with its chain; with it alone, an address without a user logs in by it',
    'CERTIFICATE',
  ),
  RABBITMQ_KEY: pem('the private key of RABBITMQ_CERT', 'PRIVATE KEY'),
  RABBITMQ_MANAGEMENT_URL: setting({
    schema: z.url({ protocol: /^https?$/ }).optional(),
    about:
      'management API of the broker, for `twinbox topology`; without a user, that of RABBITMQ_URL logs in',
    expects: 'an address like http://user:password@127.0.0.1:15672',
    example: 'http://user:password@127.0.0.1:15672',
    secret: true,
  }),

  REDIS_PREFIX: setting({
    schema: z
      .string()
      .regex(/^[A-Za-z0-9_.-]{1,64}$/)
      .default('twinbox'),
    about: 'first part of every key in Redis',
    expects: '1 to 64 letters, digits, _ . or -',
    example: 'twinbox',
  }),
  LOG_LEVEL: setting({
    schema: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']).default('info'),
    about: 'least level that is logged',
    expects: 'one of trace, debug, info, warn, error, fatal, silent',
    example: 'info',
  }),
  HOST: setting({
    schema: z.string().min(1).default('127.0.0.1'),
    about: 'address that health and web listen on; nothing leaves loopback unless this says so',
    expects: 'an address of this machine',
    example: '127.0.0.1',
  }),
  PORT: whole(
    'port of web (3000 when it is 0), or of health on the other process types (none when it is 0)',
    'port',
    0,
    65_535,
    0,
  ),
  SHUTDOWN_TIMEOUT_MS: whole(
    'time a stop may take before the process gives up',
    'milliseconds',
    100,
    3_600_000,
    25_000,
  ),
  TWINBOX_PROCESSORS: setting({
    schema: z.string().min(1).optional(),
    about: 'module whose export `processors` lists the actors; default: the actors of this package',
    expects: 'the path of a module',
    example: './dist/processors/index.js',
  }),
  TWINBOX_PROCESS: setting({
    schema: z.string().min(1).max(100).optional(),
    about: 'name of this instance in logs and leases; set by `twinbox start`',
    expects: 'a name such as notify.2',
    example: 'notify.2',
  }),

  RELAY_WINDOW: whole('rows in flight: published and not yet marked', 'rows', 1, 2_000, 200),
  RELAY_POLL_MS: whole('longest wait between two looks into an idle outbox', 'milliseconds', 5, 5_000, 250),
  RELAY_CONFIRM_TIMEOUT_MS: whole(
    'after this a publish without an answer counts as unknown',
    'milliseconds',
    100,
    600_000,
    30_000,
  ),
  RELAY_MAX_ATTEMPTS: whole(
    'returns or nacks before a row is parked; with the back-off below, 24 span about an hour',
    'attempts',
    1,
    1_000,
    24,
  ),
  RELAY_BACKOFF_FIRST_MS: whole('first wait after a return or nack', 'milliseconds', 10, DAY_MS, 1_000),
  RELAY_BACKOFF_CAP_MS: whole('longest wait after a return or nack', 'milliseconds', 10, DAY_MS, 300_000),
  RELAY_ON_PARKED: setting({
    schema: z.enum(['skip', 'block']).default('skip'),
    about:
      'whether later rows of a key pass its parked row (skip), or wait until someone acts (block: where an actor is ordered)',
    expects: 'skip or block',
    example: 'skip',
  }),
  OUTBOX_RETENTION_DAYS: whole(
    'how long published rows are kept, so that they can be published again on purpose; less than INBOX_RETENTION_SECONDS',
    'days',
    1,
    3_650,
    7,
  ),
  MAX_BODY_BYTES: whole(
    'largest body that is sent or recorded, before and after decoding',
    'bytes',
    1,
    LARGEST_MAX_BODY_BYTES,
    DEFAULT_MAX_BODY_BYTES,
  ),

  INGEST_PREFETCH: whole('deliveries held unacked for each mailbox', 'messages', 1, 2_000, 300),
  INGEST_BATCH: whole('messages recorded by one insert', 'messages', 1, 1_000, 100),
  INBOX_RETENTION_SECONDS: whole(
    'how long a processed message is remembered: the window in which a duplicate is recognised',
    'seconds',
    1,
    315_360_000,
    1_209_600,
  ),
  LEASE_MS: whole(
    'how long a run is believed alive without a heartbeat',
    'milliseconds',
    300,
    DAY_MS,
    60_000,
  ),
  QUEUE_MAX_WAITING: whole(
    'jobs waiting in Redis for each actor; what is beyond stays in the inbox',
    'jobs',
    1,
    10_000_000,
    100_000,
  ),
  SWEEP_INTERVAL_MS: whole('time between two sweeps', 'milliseconds', 50, DAY_MS, 10_000),
  SWEEP_MIN_AGE_MS: whole('age before the sweeper looks at a message', 'milliseconds', 50, DAY_MS, 30_000),

  WEB_USER: setting({
    schema: z.string().min(1).max(100).optional(),
    about: 'login of the console',
    expects: 'a login name',
    example: 'admin',
  }),
  WEB_PASSWORD: setting({
    schema: z.string().min(12).optional(),
    about: 'password of the console',
    expects: 'at least 12 characters',
    secret: true,
  }),
} as const;

export type SettingName = keyof typeof SETTINGS;
type ValueOf<N extends SettingName> = z.infer<(typeof SETTINGS)[N]['schema']>;

/** Settings that no process type needs until it says so. */
export type NeededName =
  'DATABASE_URL' | 'RABBITMQ_URL' | 'REDIS_URL' | 'MONGODB_URI' | 'WEB_USER' | 'WEB_PASSWORD';

/** What a process type that needs `N` is given: those, and every setting that has a default. */
export type Config<N extends NeededName = never> = {
  readonly [K in Exclude<SettingName, NeededName>]: ValueOf<K>;
} & { readonly [K in N]: string };
