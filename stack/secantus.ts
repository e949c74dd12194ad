import { existsSync, mkdirSync, openSync, closeSync } from 'node:fs';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { installPackages } from './apt.js';
import { cacheFolder, findProgram, run } from './programs.js';

const PYPI = 'secantusdb==0.7.0b3';
const CRATE = ['secantus-mdb', '--version', '0.5.3-beta.196'];

/** Installs the Python server into a private environment in the cache folder (about 20 s). */
export const secantusFromPyPI = async (log: (line: string) => void): Promise<boolean> => {
  const python = findProgram('python3');
  if (python === undefined) return false;
  const venv = join(cacheFolder(), 'venv');
  log(`mongodb: installing ${PYPI} into ${venv}`);
  try {
    await run(python, ['-m', 'venv', '--clear', venv]);
    await run(join(venv, 'bin', 'python'), ['-m', 'pip', 'install', '--quiet', '--only-binary=:all:', PYPI]);
    return true;
  } catch (error) {
    log(`mongodb: that failed: ${error instanceof Error ? error.message.trim() : String(error)}`);
    return false;
  }
};

/**
 * Builds the Rust server into the cache folder (8 to 10 minutes on two cores, once; then a look is enough).
 * Returns its path, or undefined when there is no cargo here.
 */
export const buildSecantus = async (log: (line: string) => void): Promise<string | undefined> => {
  const root = cacheFolder();
  const program = join(root, 'bin', 'secantusd-rs');
  const known = findProgram('secantusd-rs') ?? findProgram('secantusd-rs', [join(root, 'bin')]);
  if (known !== undefined) return known;
  const cargo = findProgram('cargo');
  if (cargo === undefined) return undefined;
  if (findProgram('cmake') === undefined && !(await installPackages(['cmake', 'g++'], log))) return undefined;
  mkdirSync(root, { recursive: true });
  const logFile = join(root, 'build.log');
  log(`mongodb: building secantusd-rs (about 10 minutes, once; ${logFile})`);
  const output = openSync(logFile, 'w', 0o600);
  try {
    // It declares a newer Rust than it needs.
    const args = ['install', ...CRATE, '--locked', '--ignore-rust-version', '--root', root];
    const child = spawn(cargo, args, { stdio: ['ignore', output, output] });
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once('exit', resolve);
      child.once('error', reject);
    });
    if (code === 0 && existsSync(program)) return program;
    log(`mongodb: the build failed (exit ${code ?? 'by signal'}); see ${logFile}`);
    return undefined;
  } finally {
    closeSync(output);
  }
};
