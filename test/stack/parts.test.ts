import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { folderOf, makeFolder, passwords } from '../../stack/folder.js';
import { withLock } from '../../stack/lock.js';
import { choosePorts } from '../../stack/ports.js';
import { bornOf, isAlive, launch, processesOf, signal } from '../../stack/processes.js';
import { until } from '../support/until.js';

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'stack-parts-'));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

test('a remembered port is kept while it is free, and left to a stranger who has it', async () => {
  const first = await choosePorts(['a', 'b'], {}, new Set());
  expect(new Set(Object.values(first)).size).toBe(2);
  expect(await choosePorts(['a', 'b'], first, new Set())).toEqual(first);

  const stranger = createServer().listen(first['a'], '127.0.0.1');
  await once(stranger, 'listening');
  expect((stranger.address() as AddressInfo).port).toBe(first['a']);
  const second = await choosePorts(['a', 'b'], first, new Set());
  expect(second['a']).not.toBe(first['a']);
  expect(second['b']).toBe(first['b']);
  stranger.close();
});

test('a pid that belongs to another process by now is not taken for ours', () => {
  const me = bornOf(process.pid)!;
  expect(isAlive(me)).toBe(true);
  const earlier = { pid: process.pid, startTicks: '1' };
  expect(isAlive(earlier)).toBe(false);
  expect(processesOf(`${root}:none`, [earlier])).toEqual([]);
});

test('a process that lost its parent is still found by its mark', async () => {
  const mark = `${root}:orphan`;
  const script = 'sleep 300 & echo $! && exec sleep 300';
  const launched = await launch({ program: 'sh', args: ['-c', script], cwd: root }, mark, join(root, 'log'));
  await until('both run', () => processesOf(mark, [launched]).length === 2);
  signal([launched], 'SIGKILL');
  await until('the parent is gone', () => !isAlive(launched));
  const left = processesOf(mark, [launched]);
  expect(left).toHaveLength(1);
  signal(left, 'SIGKILL');
  await until('the orphan is gone', () => processesOf(mark, [launched]).length === 0);
});

test('the lock of a dead process is free, that of a living one is not', async () => {
  const folder = folderOf(root, 'locked');
  makeFolder(folder);
  const path = join(folder.path, 'lock');
  const child = spawn('sleep', ['300']);
  await once(child, 'spawn');
  writeFileSync(path, JSON.stringify(bornOf(child.pid!)));

  let isIn = false;
  const work = withLock(folder, async () => {
    isIn = true;
  });
  const deadline = Date.now() + 300;
  await until('300 ms have passed', () => Date.now() > deadline);
  expect(isIn).toBe(false);
  child.kill('SIGKILL');
  await work;
  expect(isIn).toBe(true);
});

test('names that could leave the folder are refused; passwords are made once', () => {
  for (const name of ['', '..', 'a/b', '-x', 'a'.repeat(41)])
    expect(() => folderOf(root, name)).toThrow(/stack name/);
  const folder = folderOf(root, 'secrets');
  makeFolder(folder);
  expect(passwords(folder)).toEqual(passwords(folder));
});
