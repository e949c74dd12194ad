import type { Reporter, TestModule } from 'vitest/node';

/** One plain line at the very end, for whoever reads the output of a run and not its exit code. */
export class ClosingLine implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], errors: readonly unknown[]): void {
    const states = modules.flatMap((module) =>
      [...module.children.allTests()].map((test) => test.result().state),
    );
    const failedModules = modules.filter((module) => module.errors().length > 0).length;
    const passed = states.filter((state) => state === 'passed').length;
    const failed = states.filter((state) => state === 'failed').length + failedModules + errors.length;
    const skipped = states.length - passed - states.filter((state) => state === 'failed').length;
    process.stdout.write(`${passed} passed, ${failed} failed, ${skipped} skipped\n`);
  }
}
