import { parseArgs } from 'node:util';
import { benchIngest } from './ingest/bench.js';
import { benchRelay } from './relay/bench.js';

/** Name → a measurement, which may tell how it goes on and gives one result. */
const BENCHES: Record<string, (quick: boolean, note: (line: string) => void) => Promise<object>> = {
  relay: benchRelay,
  ingest: benchIngest,
};

const USAGE = `npm run bench -- NAME [--json] [--quick]

  names: ${Object.keys(BENCHES).join(', ')}
  --json    the last line of standard output is the result, one JSON object
  --quick   a short run, to see that it works; its figures mean nothing
`;

async function main(argv: string[]): Promise<number> {
  const { values, positionals } = parseArgs({
    args: argv,
    allowPositionals: true,
    options: { json: { type: 'boolean', default: false }, quick: { type: 'boolean', default: false } },
  });
  const [name = ''] = positionals;
  const bench = Object.hasOwn(BENCHES, name) ? BENCHES[name] : undefined;
  if (bench === undefined || positionals.length > 1) {
    process.stderr.write(USAGE);
    return 2;
  }
  const result = await bench(values.quick, (line) => process.stderr.write(`${line}\n`));
  process.stdout.write(values.json ? `${JSON.stringify(result)}\n` : `${JSON.stringify(result, null, 2)}\n`);
  return 0;
}

process.exitCode = await main(process.argv.slice(2));
