import { join, resolve } from 'node:path';
import { folderOf } from './folder.js';
import { stackOf } from './stack.js';
import type { Stack } from './stack.js';

export { SERVICE_NAMES } from './service.js';
export type { ServiceName, StackUrls } from './service.js';
export type { ServiceStatus, Stack } from './stack.js';

export type StackOptions = {
  /** Stacks of different names share nothing. */
  name: string;
  /** The folder that holds the stacks' folders; `.stack` in this repository by default. */
  root?: string;
  /** The services end with this process, however it ends. */
  attached?: boolean;
  /** Build the faster MongoDB server first where that is possible (about ten minutes, once a machine). */
  build?: boolean;
  log?: (line: string) => void;
};

/**
 * A private set of the four servers on loopback. Opening does nothing yet; see `Stack`.
 * Throws when the name cannot be a folder's.
 */
export const openStack = (options: StackOptions): Stack =>
  stackOf(folderOf(resolve(options.root ?? join(import.meta.dirname, '..', '.stack')), options.name), {
    attached: options.attached ?? false,
    build: options.build ?? false,
    log: options.log ?? (() => undefined),
  });
