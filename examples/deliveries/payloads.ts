import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { z } from 'zod';

/** One real payload: the event's name for the header, and the body to sign and send. */
export interface Payload {
  readonly event: string;
  readonly action?: string;
  readonly body: Buffer;
}

const definitions = z.array(
  z.object({ name: z.string(), examples: z.array(z.looseObject({ action: z.string().optional() })) }),
);

/** The real payloads of `@octokit/webhooks-examples` (the package is one JSON file), in the package's order. */
export function loadPayloads(): Payload[] {
  const file = createRequire(import.meta.url).resolve('@octokit/webhooks-examples');
  const events = definitions.parse(JSON.parse(readFileSync(file, 'utf8')));
  return events.flatMap(({ name, examples }) =>
    examples.map((example) => ({
      event: name,
      ...(example.action !== undefined && { action: example.action }),
      body: Buffer.from(JSON.stringify(example)),
    })),
  );
}
