import { execFile } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
const DEPCRUISE = join(ROOT, 'node_modules/.bin/depcruise');
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'twinbox-rules-'));
  for (const file of ['.dependency-cruiser.cjs', 'tsconfig.json', 'tsconfig.check.json'])
    await copyFile(join(ROOT, file), join(folder, file));
  for (const library of ['pg', 'mongodb']) {
    await write(
      `node_modules/${library}/package.json`,
      JSON.stringify({ name: library, version: '1.0.0', main: 'index.js' }),
    );
    await write(`node_modules/${library}/index.js`, 'module.exports = {};');
  }
});
afterAll(() => rm(folder, { recursive: true }));

async function write(path: string, text: string): Promise<void> {
  await mkdir(dirname(join(folder, path)), { recursive: true });
  await writeFile(join(folder, path), text);
}

/** A tree of these files alone, judged by the repository's own rules. */
async function judge(files: Record<string, string>): Promise<{ code: number; output: string }> {
  await rm(join(folder, 'src'), { recursive: true, force: true });
  for (const [path, text] of Object.entries(files)) await write(path, text);
  return new Promise((resolve) => {
    execFile(
      DEPCRUISE,
      ['--config', '.dependency-cruiser.cjs', 'src'],
      { cwd: folder },
      (error, stdout, stderr) => {
        resolve({ code: typeof error?.code === 'number' ? error.code : 0, output: stdout + stderr });
      },
    );
  });
}

const door = {
  'src/inbox/index.ts': `export { x } from './inner.js';`,
  'src/inbox/inner.ts': 'export const x = 1;',
};

test('a tree that keeps the rules passes', async () => {
  const { code, output } = await judge({
    ...door,
    'src/ingest/a.ts': `import { x } from '../inbox/index.js';\nexport const y = x;`,
  });
  expect(output).toContain('no dependency violations');
  expect(code).toBe(0);
});

test.each<[string, string, Record<string, string>]>([
  [
    'a stage that reaches over its neighbour',
    'relay-imports',
    { ...door, 'src/relay/a.ts': `import { x } from '../inbox/index.js';\nexport const y = x;` },
  ],
  [
    'a type counts as well',
    'relay-imports',
    {
      'src/inbox/index.ts': 'export interface X { a: 1 }',
      'src/relay/a.ts': `import type { X } from '../inbox/index.js';\nexport const y = (x: X): 1 => x.a;`,
    },
  ],
  [
    'a store that knows another',
    'queue-imports',
    { ...door, 'src/queue/a.ts': `import { x } from '../inbox/index.js';\nexport const y = x;` },
  ],
  [
    'runtime that knows anything',
    'runtime-imports',
    { ...door, 'src/runtime/a.ts': `import { x } from '../inbox/index.js';\nexport const y = x;` },
  ],
  [
    'an actor that touches a store',
    'processors-imports',
    { ...door, 'src/processors/a.ts': `import { x } from '../inbox/index.js';\nexport const y = x;` },
  ],
  [
    'a store entered by the window',
    'inbox-door',
    { ...door, 'src/ingest/a.ts': `import { x } from '../inbox/inner.js';\nexport const y = x;` },
  ],
  [
    'a client library outside its store',
    'pg-only',
    { 'src/relay/a.ts': `import pg from 'pg';\nexport const y = pg;` },
  ],
  [
    'the MongoDB driver outside the inbox',
    'mongodb-only',
    { 'src/runner/a.ts': `import { MongoClient } from 'mongodb';\nexport const y = MongoClient;` },
  ],
  [
    'a folder nobody has rules for',
    'unknown-folder',
    { ...door, 'src/misc/a.ts': `import { x } from '../inbox/index.js';\nexport const y = x;` },
  ],
  [
    'a circle',
    'no-circular',
    {
      'src/relay/a.ts': `import { b } from './b.js';\nexport const a = (): number => b();`,
      'src/relay/b.ts': `import { a } from './a.js';\nexport const b = (): number => a();`,
    },
  ],
])('%s is refused', async (_, rule, files) => {
  const { code, output } = await judge(files);
  expect(output).toContain(rule);
  expect(code).toBeGreaterThan(0);
});
