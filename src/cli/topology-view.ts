import { mismatchText, type Difference, type Plan, type Seen } from '../broker/index.js';
import { count, plain } from './table.js';

/** A plan for people: + is missing, ~ differs, - is too much. */
export function planLines(
  { vhost, broker }: { readonly vhost: string; readonly broker: string },
  { through }: Pick<Seen, 'through'>,
  { differences, notes }: Plan,
): string {
  const by = through === 'management' ? 'the management API' : 'declares';
  const lines = [
    `virtual host ${vhost} at ${broker}, seen through ${by}`,
    ...differences.map(lineOf),
    ...notes.map((note) => `  note: ${note}`),
    differences.length === 0
      ? through === 'management'
        ? 'no difference'
        : 'no difference that can be seen'
      : `${count(differences.length, 'difference')}; \`twinbox topology apply\` makes good what is missing`,
  ];
  return lines.map((line) => `${plain(line)}\n`).join('');
}

function lineOf(one: Difference): string {
  switch (one.kind) {
    case 'exchange-missing':
      return `  + exchange ${one.exchange.name} (${[one.exchange.type, ...pairs(one.exchange.arguments)].join(', ')})`;
    case 'queue-missing':
      return `  + queue ${one.queue.name} (${pairs(one.queue.arguments).join(', ')})`;
    case 'binding-missing':
      return `  + binding ${one.binding.exchange} → ${one.binding.queue} '${one.binding.pattern}'`;
    case 'exchange-differs':
      return `  ~ ${mismatchText({ ...one, what: 'exchange', name: one.exchange })}`;
    case 'queue-differs':
      return `  ~ ${mismatchText({ ...one, what: 'queue', name: one.queue })}`;
    case 'migration-unfinished':
      return `  ~ queue '${one.queue}' is half migrated, ${held(one.messages)} in ${one.temporary}: \`twinbox topology apply --migrate-queue ${one.queue}\` goes on`;
    case 'binding-old':
      return `  - binding ${one.binding.exchange} → ${one.binding.queue} '${one.binding.pattern}': no actor declares it; \`apply --remove-old\` removes it`;
    case 'queue-old':
      return `  - queue ${one.queue} (${held(one.messages)}): there is no such actor; \`apply --remove-old\` deletes it once it is empty`;
  }
}

const pairs = (args: Readonly<Record<string, string | number>>): string[] =>
  Object.entries(args).map(([name, value]) => `${name} ${value}`);

const held = (messages: number | undefined): string =>
  messages === undefined ? 'content unknown' : count(messages, 'message');
