import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { generatedPages } from '../../docs/generate.js';

test.each(Object.entries(generatedPages()))(
  '%s is what the code says (else: npm run docs)',
  async (path, text) => {
    expect(await readFile(join(import.meta.dirname, '../..', path), 'utf8')).toBe(text);
  },
);
