import { execFile } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Channel } from 'amqplib';

export interface Ended {
  readonly code: number;
  readonly text: string;
}

const MAIN = join(import.meta.dirname, '../../dist/cli/main.js');
const ACTORS = join(import.meta.dirname, '../../dist/actor/index.js');

/** Runs `twinbox topology …` to its end. */
export function topologyCommand(env: NodeJS.ProcessEnv, ...argv: string[]): Promise<Ended> {
  return new Promise((resolve) => {
    execFile(process.execPath, [MAIN, 'topology', ...argv], { env }, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code), text: `${stdout}${stderr}` });
    });
  });
}

/** The arguments of a command that is run as a process of its own. */
export const topologyArgs = (...argv: string[]): string[] => [MAIN, 'topology', ...argv];

/** A module for TWINBOX_PROCESSORS with these actors and their subscriptions. */
export function actorsModule(actors: Readonly<Record<string, readonly string[]>>): string {
  const file = join(mkdtempSync(join(tmpdir(), 'twinbox-actors-')), 'actors.mjs');
  const lines = Object.entries(actors).map(
    ([name, subscribes]) =>
      `  ${JSON.stringify(name)}: async () => ({ one: actor(${JSON.stringify(name)}, ${JSON.stringify(subscribes)}) }),`,
  );
  writeFileSync(
    file,
    `import { defineProcessor } from ${JSON.stringify(ACTORS)};
const schema = { safeParse: (data) => ({ success: true, data }) };
const actor = (name, subscribes) => defineProcessor({ name, subscribes, schema, owner: 'tests', example: {}, attempts: 1,
  backoff: { firstMs: 1, capMs: 1 }, concurrency: 1, timeoutMs: 1000, effect: async () => {} });
export const processors = {
${lines.join('\n')}
};
`,
  );
  return file;
}

export interface Taken {
  readonly id: string;
  readonly routingKey: string;
  readonly properties: Record<string, unknown>;
  readonly body: string;
}

/** Everything that stands in a queue, oldest first, taken out of it. */
export async function drain(channel: Channel, queue: string): Promise<Taken[]> {
  const taken: Taken[] = [];
  for (;;) {
    const message = await channel.get(queue, { noAck: true });
    if (message === false) return taken;
    taken.push({
      id: String(message.properties.messageId),
      routingKey: message.fields.routingKey,
      properties: message.properties as unknown as Record<string, unknown>,
      body: message.content.toString(),
    });
  }
}

/** The ids in the order of their first coming. */
export const firsts = (taken: readonly Taken[]): string[] => [...new Set(taken.map(({ id }) => id))];
