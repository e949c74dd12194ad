/** One way to do one step of a stage, measured alone. */
export interface Way {
  readonly name: string;
  /** Messages a second. */
  readonly rate: number;
  /** CPU seconds of the whole machine for 1,000 messages. */
  readonly cpuPer1000: number;
}

export interface Limit {
  /** Messages a second. */
  readonly limit: number;
  /** What the cores allow when all steps run at the same time. */
  readonly byCpu: number;
  /** The way taken for each step. */
  readonly ways: readonly string[];
}

/**
 * What a stage could do at most: the smaller of its slowest step alone and the cores divided by the summed CPU time
 * of its steps. Where a step was measured in several ways, those that give the stage the highest limit.
 * @param steps for each step the ways in which it was measured, at least one
 */
export function limitOf(steps: readonly (readonly Way[])[], cores: number): Limit {
  const choices = steps.reduce<Way[][]>(
    (all, ways) => all.flatMap((chosen) => ways.map((way) => [...chosen, way])),
    [[]],
  );
  const limits = choices.map((chosen): Limit => {
    const byCpu = (cores / chosen.reduce((sum, { cpuPer1000 }) => sum + cpuPer1000, 0)) * 1_000;
    const limit = Math.min(byCpu, ...chosen.map(({ rate }) => rate));
    return { limit: Math.round(limit), byCpu: Math.round(byCpu), ways: chosen.map(({ name }) => name) };
  });
  return limits.reduce((best, one) => (one.limit > best.limit ? one : best));
}
