/** Wakes those who wait for something to happen. A ring that nobody waits for is forgotten. */
export interface Bell {
  ring(): void;
  /** Resolves at the next ring, after `ms` at the latest. */
  wait(ms: number): Promise<void>;
}

export function createBell(): Bell {
  const waiting = new Set<() => void>();
  return {
    ring: () => {
      for (const wake of waiting) wake();
    },
    wait: (ms) =>
      new Promise((resolve) => {
        const wake = (): void => {
          clearTimeout(timer);
          waiting.delete(wake);
          resolve();
        };
        const timer = setTimeout(wake, ms);
        waiting.add(wake);
      }),
  };
}
