import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { SETTINGS, type Setting } from '../src/runtime/settings.js';

/** The pages that are made from the code, by path. `npm run docs` writes them; a test holds them against it. */
export function generatedPages(): Record<string, string> {
  return { 'docs/configuration.md': configurationPage(), '.env.example': envExample() };
}

const settings = Object.entries(SETTINGS) as [string, Setting][];

function configurationPage(): string {
  const rows = settings.map(([name, { about, expects, secret, aliases = [] }]) => {
    const also =
      aliases.length === 0 ? '' : ` Also read from ${aliases.map((alias) => `\`${alias}\``).join(', ')}.`;
    return `| \`${name}\` | ${about}.${also} | ${expects.replaceAll('|', '\\|')}${secret === true ? ' (secret)' : ''} | ${presetOf(name) ?? ''} |`;
  });
  return `# Configuration

Read once at the start, from the environment. Every fault is told in one message, with exit code 78, and never
with a value. A name that looks like one of these and is none is a fault too. \`NAME_FILE\` names a file that holds
the value of \`NAME\`, for secrets that are mounted. An empty value counts as not set.

This page is made from \`src/runtime/settings.ts\` by \`npm run docs\`.

| setting | what it is | must be | default |
| --- | --- | --- | --- |
${rows.join('\n')}

An actor's own settings (\`settings\` of its definition) are read in the same way when its process starts.
`;
}

function envExample(): string {
  const lines = settings.map(([name, { about, example = '' }]) => {
    const preset = presetOf(name);
    return `# ${about}\n${preset === undefined ? '' : '# '}${name}=${preset ?? example}`;
  });
  return `# Made from src/runtime/settings.ts by \`npm run docs\`. A line that is commented out shows its default.\n\n${lines.join('\n\n')}\n`;
}

/** What a setting is when nothing is set; undefined when it has no default. */
function presetOf(name: string): string | undefined {
  const parsed = (SETTINGS as Record<string, Setting>)[name]?.schema.safeParse(undefined);
  const preset = parsed?.data as string | number | undefined;
  return preset === undefined ? undefined : String(preset);
}

if (process.argv[1] === import.meta.filename) {
  for (const [path, text] of Object.entries(generatedPages()))
    await writeFile(join(import.meta.dirname, '..', path), text);
}
