import { noProbe, type Probe } from '../runtime/probe.js';
import { UsageError, withUsage, type CommandContext } from './command.js';
import { changeCommand } from './dlq-change.js';
import { auditCommand, exportCommand, listCommand, showCommand } from './dlq-look.js';
import { LETTERS_USAGE } from './dlq-selection.js';

const USAGE = `twinbox dlq <command> <actor>

  list   [letters] [--limit N] [--json]             what is in twinbox.<actor>.dlq, oldest first, each letter with its reason
  show   <id> | --letter NAME [--full] [--json]     one letter with its headers and the first 64 KiB of its body, or all of it
  replay <letters> [--limit N] [--rate N] [--yes]   back to the actor's mailbox: ids, headers and origin stay
  export [letters] [--limit N]                      a JSON line for each letter, with all that publishing it again needs
  purge  <letters> [--limit N] --reason TEXT --yes  deletes letters
  audit  [--limit N] [--json]                       who replayed and purged what, newest first

letters:${LETTERS_USAGE}
list, show, export and audit change nothing, and whatever ends them leaves every letter in its place. replay and purge show
what they would do, and with --yes do it:
  --all               every letter, where no other option narrows
  --rate N            letters a second that are replayed (500)
  --reason TEXT       kept in the audit, beside who, when and which letters; a purge needs one
  --limit N           the N oldest of those that are meant (list: 50)
One command looks into an actor's letters at a time; the next waits for its turn, for a minute.
--json prints one JSON document: an array for list and audit.
Exit code: 0 done, or shown · 1 failed, interrupted, none of those named is there, or some could not be replayed · 2 usage · 78 configuration.
`;

/** `twinbox dlq …`. @returns the exit code */
export function dlq(context: CommandContext, probe: Probe = noProbe): Promise<number> {
  const [verb, ...argv] = context.argv;
  const rest = { ...context, argv };
  return withUsage(USAGE, context, () => {
    switch (verb) {
      case 'list':
        return listCommand(rest);
      case 'show':
        return showCommand(rest);
      case 'export':
        return exportCommand(rest);
      case 'audit':
        return auditCommand(rest);
      case 'replay':
      case 'purge':
        return changeCommand(verb, rest, probe);
      default:
        throw new UsageError(
          verb === undefined
            ? 'what about the dead letters?'
            : `there is no command dlq ${JSON.stringify(verb)}`,
        );
    }
  });
}
