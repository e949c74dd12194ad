import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { defineProcessor, entriesOf, entryOf, isProcessor, openCatalog } from '../../src/actor/index.js';
import { ConfigurationError } from '../../src/runtime/errors.js';

const GOOD = {
  name: 'receipt',
  owner: 'sales',
  subscribes: ['order.placed'],
  schema: z.object({ orderId: z.string() }),
  example: { orderId: 'o-1' },
  attempts: 8,
  backoff: { firstMs: 1_000, capMs: 300_000 },
  concurrency: 20,
  timeoutMs: 30_000,
  effect: () => Promise.resolve(),
};

test('a whole definition is a processor, and cannot be changed', () => {
  const receipt = defineProcessor(GOOD);
  expect(isProcessor(receipt)).toBe(true);
  expect(Object.isFrozen(receipt)).toBe(true);
  for (const other of [GOOD, null, undefined, 5, {}]) expect(isProcessor(other)).toBe(false);
});

test.each([
  ['name', { name: 'Receipt' }],
  ['name', { name: '' }],
  ['name', { name: 'a'.repeat(41) }],
  ['owner', { owner: ' ' }],
  ['subscribes', { subscribes: [] }],
  ['subscribes', { subscribes: ['order..placed'] }],
  ['subscribes', { subscribes: ['order placed'] }],
  ['attempts', { attempts: 0 }],
  ['attempts', { attempts: 1.5 }],
  ['concurrency', { concurrency: Number.NaN }],
  ['timeoutMs', { timeoutMs: 2 ** 31 }],
  ['backoff', { backoff: { firstMs: 10, capMs: 5 } }],
  ['example', { example: { orderId: 5 as unknown as string } }],
])('a wrong %s is named (%j)', (field, wrong) => {
  expect(() => defineProcessor({ ...GOOD, ...wrong })).toThrow(
    new RegExp(`processor .* cannot work: ${field}`),
  );
});

test('every fault is named at once', () => {
  expect(() => defineProcessor({ ...GOOD, owner: '', attempts: 0 })).toThrow(/owner.*attempts/);
});

test.each(['#', '*', 'github.*', 'github.#', 'a-b.c_d.E1'])('%s is a pattern', (pattern) => {
  expect(defineProcessor({ ...GOOD, subscribes: [pattern] }).subscribes).toEqual([pattern]);
});

test('an entry knows its name before its file is loaded, and tells what the file lacks', async () => {
  const receipt = defineProcessor(GOOD);
  const catalog = entriesOf({
    receipt: () => Promise.resolve({ receipt }),
    other: () => Promise.resolve({ receipt }),
    broken: () => Promise.reject(new Error('syntax')),
  });
  expect(catalog.map(({ name }) => name)).toEqual(['receipt', 'other', 'broken']);
  expect(await entryOf(catalog, 'receipt').load()).toBe(receipt);
  await expect(entryOf(catalog, 'other').load()).rejects.toThrow('exports no processor of that name');
  await expect(entryOf(catalog, 'broken').load()).rejects.toThrow('syntax');
  expect(() => entryOf(catalog, 'nobody')).toThrow('known: receipt, other, broken');
});

test('the list of actors comes from the module that is named, or the fault says how it must look', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'twinbox-actors-'));
  const file = (name: string, text: string): string => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  try {
    const good = file('good.mjs', 'export const processors = { a: () => import("./a.mjs") };');
    expect((await openCatalog(good)).map(({ name }) => name)).toEqual(['a']);
    for (const [path, says] of [
      [file('none.mjs', 'export const other = 1;'), 'exports no `processors`'],
      [file('bad.mjs', 'throw new Error("no")'), 'cannot be loaded'],
      [join(folder, 'missing.mjs'), 'TWINBOX_PROCESSORS'],
    ] as const) {
      const fault = await openCatalog(path).catch((error: unknown) => error);
      expect(fault).toBeInstanceOf(ConfigurationError);
      expect((fault as Error).message).toContain(says);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});
