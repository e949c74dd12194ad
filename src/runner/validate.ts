import type { Processor } from '../actor/index.js';
import type { StoredDocument } from '../inbox/index.js';
import { readPayload } from '../message/index.js';

/** What the effect gets of a message, or why it can get nothing. */
export async function validate(
  document: Pick<StoredDocument, 'body' | 'contentType' | 'contentEncoding' | 'source'>,
  { processor, maxBodyBytes }: { readonly processor: Processor; readonly maxBodyBytes: number },
): Promise<{ value: unknown } | { fault: string }> {
  if (document.body === undefined)
    return { fault: "the body is not kept (keepBody: 'until-processed'), so it cannot run again" };
  const payload = readPayload(
    { ...document, body: Buffer.from(document.body.buffer), format: document.source.format },
    maxBodyBytes,
  );
  if ('fault' in payload) return payload;
  const parsed = await processor.schema.safeParseAsync(payload.value);
  if (parsed.success) return { value: parsed.data };
  // Paths and rules, never the values.
  return {
    fault: `the schema refuses the body: ${parsed.error.issues
      .slice(0, 10)
      .map(({ path, code, message }) => `${path.join('.') || '(root)'} ${code}: ${message}`)
      .join('; ')}`,
  };
}
