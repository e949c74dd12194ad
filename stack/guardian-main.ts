import { createInterface } from 'node:readline';
import { openStack, SERVICE_NAMES } from './index.js';
import { clearOwner, readOwner } from './owner.js';
import { folderOf } from './folder.js';
import type { ServiceName } from './service.js';

const [root = '', name = ''] = process.argv.slice(2);
const folder = folderOf(root, name);
const isService = (line: string): line is ServiceName => SERVICE_NAMES.some((known) => known === line);

// Only the end of the pipe ends it.
for (const one of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(one, () => undefined);

const guarded = new Set<ServiceName>();
process.stdout.on('error', () => undefined);
process.stdout.write('watching\n');
for await (const line of createInterface({ input: process.stdin })) {
  if (line === 'release') process.exit(0);
  if (isService(line)) guarded.add(line);
}

// The pipe ended without a word: our process is gone. If the stack has another owner by now, it is not ours to stop.
if (readOwner(folder)?.guardian.pid === process.pid) {
  await openStack({ root, name, log: (line) => void process.stderr.write(`${line}\n`) }).stop([...guarded]);
  clearOwner(folder);
}
process.exit(0);
