import { parseArgs } from 'node:util';
import { openCatalog } from '../actor/index.js';
import {
  applyPlan,
  brokerAccess,
  explain,
  openManagement,
  placeOf,
  planOf,
  seeByDeclaring,
  topologyOf,
  vhostOf,
  visitBroker,
  type ActorDeclaration,
  type ChannelModel,
  type Management,
  type Plan,
  type Seen,
  type Topology,
  type Wishes,
} from '../broker/index.js';
import { readConfig } from '../runtime/config.js';
import { describe } from '../runtime/errors.js';
import { UsageError, usageOf, withUsage, type CommandContext } from './command.js';
import { plain } from './table.js';
import { planLines } from './topology-view.js';

const USAGE = `twinbox topology plan|check|apply [--json]

  plan    what differs between the actors' declarations and the live broker; changes nothing
  check   the same, for scripts: exit code 1 when there is a difference
  apply   declares and binds what is missing; nothing that exists is changed, unless you ask for it:
            --migrate-queue NAME     make a queue anew that differs, with its content (may be repeated)
            --replace-exchange NAME  make an exchange anew that differs, with its bindings (may be repeated)
            --remove-old             remove bindings that no actor declares, and empty queues of actors that are gone

With RABBITMQ_MANAGEMENT_URL everything is seen; without it neither bindings nor what is too much.
Exit code: 0 done · 1 differences are left (check, apply), or it failed · 2 usage · 78 configuration.
`;

const LOOK_MS = 60_000;
/** A queue of many millions takes its time; a broker that is gone is noticed by the heartbeat. */
const APPLY_MS = 86_400_000;

/** `twinbox topology`. @returns the exit code */
export function topology(context: CommandContext): Promise<number> {
  return withUsage(USAGE, context, () => run(context));
}

async function run({ argv, env, stdout, stderr }: CommandContext): Promise<number> {
  const { action, json, wishes } = argumentsOf(argv);
  const config = readConfig(env, ['RABBITMQ_URL'], { process: 'twinbox topology' });
  const source = brokerAccess(env, 'twinbox topology');
  const { actors, faults } = await declarations(config.TWINBOX_PROCESSORS);
  for (const fault of faults) stderr.write(`${fault}\n`);
  const want = topologyOf(actors);
  const management =
    config.RABBITMQ_MANAGEMENT_URL === undefined
      ? undefined
      : openManagement(config.RABBITMQ_MANAGEMENT_URL, source);
  const first = source().addresses[0] as string;
  const where = { vhost: vhostOf(first), broker: placeOf(first) };

  const visit = async (model: ChannelModel): Promise<number> => {
    const { seen, plan } = await look(model, want, management);
    if (action !== 'apply') {
      if (json) stdout.write(`${JSON.stringify({ ...where, through: seen.through, ...plan })}\n`);
      else stdout.write(planLines(where, seen, plan));
      return action === 'check' && plan.differences.length > 0 ? 1 : 0;
    }
    const done: string[] = [];
    const left = await applyPlan({
      model,
      topology: want,
      seen,
      plan,
      wishes,
      messagesOf: seen.through === 'management' ? management?.messagesOf : undefined,
      say: (line) => {
        done.push(line);
        if (!json) stdout.write(`${plain(line)}\n`);
      },
    });
    if (json)
      stdout.write(`${JSON.stringify({ ...where, through: seen.through, done, left, notes: plan.notes })}\n`);
    else {
      for (const line of left) stdout.write(`left: ${plain(line)}\n`);
      for (const note of plan.notes) stdout.write(`note: ${plain(note)}\n`);
      if (left.length === 0) stdout.write('the broker has everything that the actors declare\n');
    }
    return left.length === 0 ? 0 : 1;
  };
  try {
    return await visitBroker(
      source,
      `twinbox topology ${action}`,
      action === 'apply' ? APPLY_MS : LOOK_MS,
      visit,
    );
  } catch (error) {
    const told = explain(error)?.text;
    if (told === undefined) throw error;
    stderr.write(`twinbox: ${plain(told)}\n`);
    return 1;
  }
}

interface Arguments {
  readonly action: 'plan' | 'check' | 'apply';
  readonly json: boolean;
  readonly wishes: Wishes;
}

function argumentsOf(argv: readonly string[]): Arguments {
  const { values, positionals } = usageOf(() =>
    parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: {
        json: { type: 'boolean', default: false },
        'remove-old': { type: 'boolean', default: false },
        'migrate-queue': { type: 'string', multiple: true, default: [] },
        'replace-exchange': { type: 'string', multiple: true, default: [] },
      },
    }),
  );
  const [action, ...more] = positionals;
  if ((action !== 'plan' && action !== 'check' && action !== 'apply') || more.length > 0)
    throw new UsageError('say one of plan, check, apply');
  const wishes = {
    removeOld: values['remove-old'],
    migrateQueues: values['migrate-queue'],
    replaceExchanges: values['replace-exchange'],
  };
  const wished = wishes.removeOld || wishes.migrateQueues.length + wishes.replaceExchanges.length > 0;
  if (action !== 'apply' && wished)
    throw new UsageError(
      `${action} changes nothing: --remove-old, --migrate-queue and --replace-exchange belong to apply`,
    );
  return { action, json: values.json, wishes };
}

async function look(
  model: ChannelModel,
  want: Topology,
  management: Management | undefined,
): Promise<{ seen: Seen; plan: Plan }> {
  if (management === undefined) {
    const seen = await seeByDeclaring(model, want);
    return { seen, plan: planOf(want, seen) };
  }
  try {
    const seen = await management.see(want);
    return { seen, plan: planOf(want, seen) };
  } catch (error) {
    const seen = await seeByDeclaring(model, want);
    const { differences, notes } = planOf(want, seen);
    return { seen, plan: { differences, notes: [describe(error).replace(/^Error: /, ''), ...notes] } };
  }
}

/** An actor whose file cannot be loaded keeps its mailbox. */
async function declarations(
  modulePath: string | undefined,
): Promise<{ actors: ActorDeclaration[]; faults: string[] }> {
  const faults: string[] = [];
  const actors: ActorDeclaration[] = [];
  for (const { name, load } of await openCatalog(modulePath)) {
    try {
      actors.push({ name, subscribes: (await load()).subscribes });
    } catch (error) {
      faults.push(`actor ${name} cannot be loaded: ${describe(error)}`);
      actors.push({ name });
    }
  }
  return { actors, faults };
}
