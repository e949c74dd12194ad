import { existsSync, mkdirSync, openSync, closeSync } from 'node:fs';
import { spawn } from 'node:child_process';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { installPackages } from './apt.js';
import { cacheFolder, findProgram, run } from './programs.js';

const PYPI = 'secantusdb==0.7.0b3';
const CRATE = ['secantus-mdb', '--version', '0.5.3-beta.196'];

/** Packages without which no private Python environment can be made here. */
export const missingForPython = async (): Promise<string[]> => {
  try {
    // Debian's python3 has venv but, without a further package, not what puts pip into it.
    await run(findProgram('python3') ?? 'python3', ['-c', 'import venv, ensurepip']);
    return [];
  } catch {
    return ['python3', 'python3-venv'];
  }
};

/** Installs the Python server into a private environment in the cache folder (about 20 s). Throws when it cannot. */
export const secantusFromPyPI = async (log: (line: string) => void): Promise<void> => {
  const python = findProgram('python3');
  if (python === undefined || (await missingForPython()).length > 0) return;
  const venv = join(cacheFolder(), 'venv');
  log(`mongodb: installing ${PYPI} into ${venv}`);
  try {
    await run(python, ['-m', 'venv', '--clear', venv]);
    await run(join(venv, 'bin', 'python'), ['-m', 'pip', 'install', '--quiet', '--only-binary=:all:', PYPI]);
  } catch (error) {
    const said = (error as { stderr?: string }).stderr ?? String(error);
    throw new Error(`mongodb: pip could not install ${PYPI}: ${said.trim()}`, { cause: error });
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
  const cargo = findProgram('cargo') ?? findProgram('cargo', [join(homedir(), '.cargo', 'bin')]);
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
