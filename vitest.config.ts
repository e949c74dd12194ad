import { defineConfig } from 'vitest/config';
import { ClosingLine } from './test/support/closing-line.js';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/support/global.ts'],
    // Two cores carry five servers as well; files that start whole process trees must not fight for them.
    fileParallelism: false,
    testTimeout: 60_000,
    hookTimeout: 120_000,
    reporters: ['default', new ClosingLine()],
  },
});
