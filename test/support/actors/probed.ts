import { ingest } from '../../../src/ingest/service.js';
import { runnerOf } from '../../../src/runner/service.js';
import { runProcess } from '../../../src/runtime/process.js';
import { relay } from '../../../src/relay/service.js';
import type { Probe } from '../../../src/runtime/probe.js';
import { sweeper } from '../../../src/sweeper/service.js';

// A process type, `relay`, `ingest`, `sweeper` or an actor's name, that kills itself at the probe point KILL_AT.
const [type = '', killAt = ''] = process.argv.slice(2);
const probe: Probe = (point) => {
  if (point === killAt) process.kill(process.pid, 'SIGKILL');
};
if (type === 'relay') await runProcess(relay, { probe });
else if (type === 'ingest') await runProcess(ingest, { probe });
else if (type === 'sweeper') await runProcess(sweeper, { probe });
else await runProcess(await runnerOf(type, process.env.TWINBOX_PROCESSORS), { probe });
