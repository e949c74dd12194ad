import { ConfigurationError, EXIT_CONFIG, toError } from '../runtime/errors.js';
import { runProcess } from '../runtime/process.js';
import { runnerOf } from './service.js';

const actor = process.argv[2];
if (actor === undefined) {
  process.stderr.write('usage: node dist/runner/main.js <actor>, as in Procfile\n');
  process.exit(2);
}
try {
  await runProcess(await runnerOf(actor, process.env.TWINBOX_PROCESSORS));
} catch (thrown) {
  const error = toError(thrown);
  process.stderr.write(
    `actor ${actor} cannot start: ${error instanceof ConfigurationError ? error.message : (error.stack ?? error.message)}\n`,
  );
  process.exit(error instanceof ConfigurationError ? EXIT_CONFIG : 1);
}
