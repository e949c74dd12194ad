/** One thing that is measured, again and again. */
export interface Part<T> {
  readonly name: string;
  run(): Promise<T>;
}

/**
 * Runs every part once a round. Each round begins with another part, and every other one goes backwards, so that what
 * drifts on the machine, and what a part leaves behind, touches all alike.
 * @returns the results of each part, in the order of the rounds
 */
export async function interleave<T>(
  parts: readonly Part<T>[],
  rounds: number,
  note: (line: string) => void,
): Promise<Map<string, T[]>> {
  const results = new Map<string, T[]>(parts.map(({ name }) => [name, []]));
  for (let round = 0; round < rounds; round += 1) {
    for (const part of orderOf(parts, round / rounds, round % 2 === 1)) {
      const result = await part.run();
      results.get(part.name)?.push(result);
      note(`round ${round + 1}  ${part.name.padEnd(24)} ${JSON.stringify(result)}`);
    }
  }
  return results;
}

/** A rate and the CPU seconds of the whole machine for 1,000 messages. */
export interface Rate {
  readonly rate: number;
  readonly cpu: number;
}

function orderOf<T>(parts: readonly T[], turn: number, backwards: boolean): T[] {
  const first = Math.floor(turn * parts.length);
  const order = [...parts.slice(first), ...parts.slice(0, first)];
  return backwards ? order.reverse() : order;
}

export function median(values: readonly number[]): number {
  return percentile(values, 0.5);
}

/** The value below which `part` of all values lie. NaN without any. */
export function percentile(values: readonly number[], part: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  if (sorted.length === 0) return NaN;
  const at = (sorted.length - 1) * part;
  const [low, high] = [sorted[Math.floor(at)] as number, sorted[Math.ceil(at)] as number];
  return low + (high - low) * (at - Math.floor(at));
}

export const round = (value: number, digits: number): number => Number(value.toFixed(digits));

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
