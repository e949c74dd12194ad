import { dlq } from '../../src/cli/dlq.js';
import type { Probe } from '../../src/runtime/probe.js';

// `twinbox dlq …`, which kills itself with -9 at the probe point that is its first argument.
const [killAt, ...argv] = process.argv.slice(2);
const probe: Probe = (point) => {
  if (point === killAt) process.kill(process.pid, 'SIGKILL');
};
const { env, stdout, stderr } = process;
process.exitCode = await dlq({ argv, env, stdout, stderr }, probe);
