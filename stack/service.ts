/** What every server of a stack is to the rest of `stack/`: one shape, four files that fill it. */

export const SERVICE_NAMES = ['postgres', 'rabbitmq', 'redis', 'mongodb'] as const;
export type ServiceName = (typeof SERVICE_NAMES)[number];

/** Where the four servers are. Passwords are inside; every host is a loopback address unless the URL was given. */
export type StackUrls = {
  DATABASE_URL: string;
  RABBITMQ_URL: string;
  REDIS_URL: string;
  MONGODB_URI: string;
  RABBITMQ_MANAGEMENT_URL?: string;
};

export type Ports = Record<string, number>;

/** The full paths of the programs a service needs, by the service's own names for them. */
export type Programs = Record<string, string>;

/** Where one service of one stack lives and what it may use. */
export type Place = {
  /** The service's own folder: configuration, data, log, pid file. */
  folder: string;
  /** Eight hex digits that differ between any two stacks of a machine. */
  id: string;
  ports: Ports;
  password: string;
  log: (line: string) => void;
};

/** One long-lived process of a service. */
export type Command = {
  program: string;
  args: string[];
  cwd: string;
  env?: Record<string, string>;
  user?: { uid: number; gid: number };
  /** The program overwrites its own environment (a process title does that), so its mark cannot be read there. */
  hidesMark?: boolean;
};

/** What is missing on this machine, and how to get it: the distribution's packages, or another way in words. */
export type Missing = { what: string; packages: string[]; otherwise?: string };

export type Service = {
  name: ServiceName;
  /** The environment variable that gives a server from elsewhere. */
  variable: 'DATABASE_URL' | 'RABBITMQ_URL' | 'REDIS_URL' | 'MONGODB_URI';
  /** Names of the ports it listens on; the first is the one its clients use. */
  portNames: readonly string[];
  /** Programs on this machine, or what is missing. Installs nothing. */
  find(): Promise<Programs | Missing>;
  /** Brings what no package of the distribution has, into the cache folder. Throws when it cannot. */
  provide?(log: (line: string) => void): Promise<void>;
  /** Folders, configuration and what a killed run left. No process of the service runs at this point. */
  prepare(place: Place, programs: Programs): Promise<void>;
  /** In the order of starting; stopped in the opposite order. */
  commands(place: Place, programs: Programs): Promise<Command[]>;
  /** What has to be done in the running server before it is of use (users, databases); harmless when repeated. */
  setUp?(place: Place): Promise<void>;
  /** One real operation. Throws until it succeeds. */
  ready(urls: Partial<StackUrls>): Promise<void>;
  /** Its addresses, with the password inside. */
  urls(place: Pick<Place, 'ports' | 'password'>): Partial<StackUrls>;
  /** Deletes what it keeps outside its folder. */
  drop?(place: Place): Promise<void>;
  /** Ends it in good order; kill follows when it takes longer than 20 s. */
  stopSignal: NodeJS.Signals;
};

export const isMissing = (found: Programs | Missing): found is Missing => Array.isArray(found['packages']);
