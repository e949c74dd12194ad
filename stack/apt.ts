import { chmodSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { findProgram, run } from './programs.js';

const POLICY = '/usr/sbin/policy-rc.d';
const POLICY_TEXT =
  '#!/bin/sh\n# twinbox: packages that are being installed start no service of their own\nexit 101\n';

/** Whether packages can be installed without asking anybody. */
export const canInstall = (): boolean =>
  process.platform === 'linux' && process.getuid?.() === 0 && findProgram('apt-get') !== undefined;

/**
 * Installs the packages of the distribution. Their own servers are kept from starting: a stack runs private ones.
 * Returns whether it was possible here; throws when apt-get failed.
 */
export const installPackages = async (packages: string[], log: (line: string) => void): Promise<boolean> => {
  if (packages.length === 0 || !canInstall()) return false;
  log(`installing with apt-get: ${packages.join(' ')}`);
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  const options = { env, maxBuffer: 64 * 1024 * 1024 };
  // A policy that the machine has already is its owner's word and stays.
  const ours = !existsSync(POLICY) || readFileSync(POLICY, 'utf8') === POLICY_TEXT;
  if (ours) writeFileSync(POLICY, POLICY_TEXT);
  if (ours) chmodSync(POLICY, 0o755);
  try {
    await run('apt-get', ['update', '-q'], options);
    await run(
      'apt-get',
      ['install', '-y', '-q', '--no-install-recommends', '--no-upgrade', ...packages],
      options,
    );
    return true;
  } catch (error) {
    const said = (error as { stderr?: string }).stderr ?? String(error);
    throw new Error(
      `apt-get could not install ${packages.join(' ')}:\n${said.trim().split('\n').slice(-8).join('\n')}`,
      { cause: error },
    );
  } finally {
    if (ours) rmSync(POLICY, { force: true });
  }
};
