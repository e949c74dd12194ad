import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Folder } from './folder.js';
import { clearOwner, writeOwner } from './owner.js';
import type { ServiceName } from './service.js';

/** A small process that stops what it was told of as soon as this process ends, however it ends. */
export type Guardian = {
  /** Call before the first process of a service is started. */
  guard(service: ServiceName): void;
  /** From now on the services go on without this process. */
  release(): Promise<void>;
};

/** What lets Node run TypeScript; found here, since the guardian starts in another folder. */
const loader = (): string => pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;

/** Starts the guardian and waits until it watches. The pipe to it is what tells it that we are gone. */
export const startGuardian = async (folder: Folder): Promise<Guardian> => {
  const errors = openSync(join(folder.path, 'guardian.log'), 'a', 0o600);
  const program = join(import.meta.dirname, 'guardian-main.ts');
  const args = ['--import', loader(), program, dirname(folder.path), folder.name];
  // Its own session: Ctrl-C on a terminal reaches our process group, and it has to outlive us.
  const child = spawn(process.execPath, args, { detached: true, stdio: ['pipe', 'pipe', errors], cwd: '/' });
  closeSync(errors);
  const { stdin, stdout } = child;
  if (!stdin || !stdout) throw new Error('a guardian without pipes guards nothing');
  const ended = once(child, 'exit');
  const watching = once(stdout, 'data');
  await Promise.race([
    watching,
    ended.then(() => {
      throw new Error(`stack ${folder.name}: the guardian did not start; see ${folder.path}/guardian.log`);
    }),
  ]);
  stdout.destroy();
  stdin.on('error', () => undefined);
  child.unref();
  // The pipe stays open until we end, but must not keep us from ending.
  (stdin as unknown as { unref(): void }).unref();
  writeOwner(folder, child.pid ?? 0);

  return {
    guard: (service) => void stdin.write(`${service}\n`),
    async release() {
      child.ref();
      stdin.end('release\n');
      await ended;
      clearOwner(folder);
    },
  };
};
