/**
 * Who may import whom. Data flows one way (outbox, relay, broker, ingest, inbox, queue, runner) and a stage
 * knows only the stores on its two sides. `import type` counts like any other import.
 */
const ALLOWED = {
  runtime: [],
  message: [],
  actor: ['message', 'runtime'],
  outbox: ['message', 'runtime'],
  broker: ['message', 'runtime'],
  inbox: ['message', 'runtime'],
  queue: ['message', 'runtime'],
  relay: ['outbox', 'broker', 'message', 'runtime'],
  ingest: ['actor', 'broker', 'inbox', 'queue', 'message', 'runtime'],
  processors: ['actor'],
  runner: ['actor', 'processors', 'broker', 'inbox', 'queue', 'message', 'runtime'],
  sweeper: ['actor', 'inbox', 'queue', 'message', 'runtime'],
  web: ['actor', 'outbox', 'broker', 'inbox', 'queue', 'message', 'runtime'],
  cli: ['actor', 'outbox', 'broker', 'inbox', 'queue', 'message', 'runtime'],
};

const layer = (folder) => ({
  name: `${folder}-imports`,
  comment: `src/${folder} may import only: ${ALLOWED[folder].join(', ') || 'nothing in src'}`,
  severity: 'error',
  from: { path: `^src/${folder}/` },
  to: { path: '^src/', pathNot: `^src/(${[folder, ...ALLOWED[folder]].join('|')})/` },
});

/** A store is one folder with one door: from outside only its index.ts is seen. */
const door = (folder) => ({
  name: `${folder}-door`,
  comment: `src/${folder} is entered through src/${folder}/index.ts`,
  severity: 'error',
  from: { path: '^(src|examples)/', pathNot: `^src/${folder}/` },
  to: { path: `^src/${folder}/`, pathNot: `^src/${folder}/index\\.ts$` },
});

/** A client library belongs to one store. */
const only = (library, paths) => ({
  name: `${library}-only`,
  comment: `${library} is spoken to in ${paths.join(', ')} alone`,
  severity: 'error',
  from: { path: '^src/', pathNot: `^src/(${paths.join('|')})/` },
  to: { path: `^node_modules/${library}/` },
});

module.exports = {
  forbidden: [
    ...Object.keys(ALLOWED).map(layer),
    ...['outbox', 'broker', 'inbox', 'queue', 'actor', 'message'].map(door),
    only('pg', ['outbox']),
    only('amqplib', ['broker']),
    only('bullmq', ['queue']),
    only('ioredis', ['queue']),
    only('@bull-board', ['web']),
    {
      name: 'mongodb-only',
      comment: 'the driver belongs to src/inbox; elsewhere its types alone may be named',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/inbox/' },
      to: { path: '^node_modules/mongodb/', dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'unknown-folder',
      comment: 'a new folder of src needs its line in .dependency-cruiser.cjs',
      severity: 'error',
      from: { path: '^src/', pathNot: `^src/(${Object.keys(ALLOWED).join('|')})/` },
      to: {},
    },
    {
      name: 'no-test-in-shipped-code',
      severity: 'error',
      from: { path: '^(src|examples)/' },
      to: { path: '^(test|stack|bench)/' },
    },
    { name: 'no-circular', severity: 'error', from: {}, to: { circular: true } },
    { name: 'no-unresolved', severity: 'error', from: {}, to: { couldNotResolve: true } },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    exclude: { path: '^dist/' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.check.json' },
    enhancedResolveOptions: {
      exportsFields: ['exports'],
      conditionNames: ['import', 'require', 'node', 'default', 'types'],
    },
  },
};
