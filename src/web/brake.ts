/** Slows down who guesses passwords. One for each process, in a bounded piece of memory. */
export interface Brake {
  /** Milliseconds until this address may try again; 0 when it may now. */
  waitMs(address: string): number;
  failed(address: string): void;
  succeeded(address: string): void;
}

/** Wrong passwords that cost nothing: people mistype. */
const FREE = 5;
const FIRST_MS = 1_000;
const CAP_MS = 60_000;
const FORGET_MS = 15 * 60_000;
const MOST_ADDRESSES = 1_000;

/**
 * From the sixth failure on, each doubles the wait, from 1 second up to a minute; a quarter of an hour without
 * one forgets them. Counted by the address of the connection: a header with another one could be made up, at
 * the price that everybody behind the same proxy shares one brake.
 */
export function createBrake(now: () => number = Date.now): Brake {
  const addresses = new Map<string, { failures: number; lastMs: number; untilMs: number }>();
  const known = (address: string) => {
    const entry = addresses.get(address);
    return entry !== undefined && now() - entry.lastMs < FORGET_MS ? entry : undefined;
  };
  return {
    waitMs: (address) => Math.max(0, (known(address)?.untilMs ?? 0) - now()),
    failed: (address) => {
      const failures = (known(address)?.failures ?? 0) + 1;
      const waitMs =
        failures <= FREE ? 0 : Math.min(CAP_MS, FIRST_MS * 2 ** Math.min(failures - FREE - 1, 20));
      addresses.delete(address); // and to the end: the first of the map is the one that is quiet for longest
      addresses.set(address, { failures, lastMs: now(), untilMs: now() + waitMs });
      const [quietest] = addresses.keys();
      if (addresses.size > MOST_ADDRESSES && quietest !== undefined) addresses.delete(quietest);
    },
    succeeded: (address) => void addresses.delete(address),
  };
}
