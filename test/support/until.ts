/** The only waiting there is in tests: asks again until the answer is there, or fails naming what never came. */
export async function until<T>(
  what: string,
  ask: () => T | undefined | false | Promise<T | undefined | false>,
  { ms = 10_000, everyMs = 20 }: { ms?: number; everyMs?: number } = {},
): Promise<T> {
  const deadline = Date.now() + ms;
  let last: unknown;
  for (;;) {
    try {
      const answer = await ask();
      if (answer !== undefined && answer !== false) return answer;
      last = undefined;
    } catch (error) {
      last = error;
    }
    if (Date.now() > deadline) throw new Error(`not within ${ms} ms: ${what}`, { cause: last });
    await new Promise((resolve) => setTimeout(resolve, everyMs));
  }
}
