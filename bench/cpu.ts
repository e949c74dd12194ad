import { readdirSync, readFileSync } from 'node:fs';
import type { ServiceName } from '../stack/index.js';
import { round } from './rounds.js';
import type { Bench } from './stores.js';

/** USER_HZ of Linux: the unit of the times in /proc. */
const TICKS_PER_SECOND = 100;

interface ProcessTimes {
  readonly parent: number;
  /** Its own and that of its children which have ended, in seconds. */
  readonly seconds: number;
}

/** CPU seconds for 1,000 messages: of the client, and of each server that has a part in it. */
export type Cost = Readonly<Record<'client' | ServiceName, number>>;

export const costOfAll = (cost: Cost): number => Object.values(cost).reduce((sum, one) => sum + one, 0);

/**
 * Begins to count the CPU time of one client and of the servers.
 * @param client the client's CPU seconds so far
 * @returns reads what `messages` messages have cost since
 */
export async function startMeter(bench: Bench, client: () => number): Promise<(messages: number) => Cost> {
  const servers = [...(await bench.pids())];
  const read = (): [string, number][] => [
    ['client', client()],
    ...servers.map(([service, pids]): [string, number] => [service, cpuSeconds(pids)]),
  ];
  const before = new Map(read());
  return (messages) =>
    Object.fromEntries(
      read().map(([name, now]) => [name, round(((now - (before.get(name) ?? NaN)) / messages) * 1_000, 4)]),
    ) as Cost;
}

/** CPU seconds of this process alone: its children are measured for themselves, or must not count at all. */
export function ownCpuSeconds(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000_000;
}

/** CPU seconds that these processes and all their descendants, also those that have ended, have used so far. */
export function cpuSeconds(roots: readonly number[]): number {
  const all = new Map<number, ProcessTimes>();
  for (const name of readdirSync('/proc')) {
    const times = /^\d+$/.test(name) ? timesOf(Number(name)) : undefined;
    if (times !== undefined) all.set(Number(name), times);
  }
  const isBelow = (pid: number): boolean => {
    for (let at: number | undefined = pid; at !== undefined && at > 1; at = all.get(at)?.parent)
      if (roots.includes(at)) return true;
    return false;
  };
  return [...all].reduce((sum, [pid, { seconds }]) => (isBelow(pid) ? sum + seconds : sum), 0);
}

/** Resident memory of one process, in MB; NaN when it has ended. */
export function residentMb(pid: number): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1] ?? NaN) / 1_000;
  } catch {
    return NaN;
  }
}

function timesOf(pid: number): ProcessTimes | undefined {
  try {
    // After the name, which may hold anything: state ppid … utime stime cutime cstime.
    const fields = (readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1) ?? '').split(' ');
    const ticks = [11, 12, 13, 14].reduce((sum, at) => sum + Number(fields[at]), 0);
    return { parent: Number(fields[1]), seconds: ticks / TICKS_PER_SECOND };
  } catch {
    return undefined; // it ended while we looked
  }
}
