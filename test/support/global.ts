import { execFileSync } from 'node:child_process';
import { openStack } from '../../stack/index.js';

/**
 * Before the first test: the compiled program and the stack `test`. What cannot be had fails the run: a test
 * that is skipped for a missing server proves nothing. The stack goes on running; the next run starts at once.
 */
export async function setup(): Promise<void> {
  execFileSync('npm', ['run', '--silent', 'build'], { stdio: 'inherit' });
  const stack = openStack({ name: 'test', log: (line) => process.stderr.write(`${line}\n`) });
  Object.assign(process.env, await stack.start());
}
