import { z } from 'zod';

/** A delivery that is whole and understood: what the tables keep and what the actors are told. */
export interface Delivery {
  /** GitHub's id of the delivery; a re-delivery carries the same. */
  readonly id: string;
  /** GitHub's name of the event, as `issues`. */
  readonly event: string;
  /** As `opened`; some events have none. */
  readonly action: string | null;
  /** Full name, as `octo/hello`; null when the event is about an organisation, an installation, a user. */
  readonly repository: string | null;
  readonly sender: string | null;
  readonly title?: string;
  /** Who gets the mail. Made up, but the same every time: the owner at example.org. */
  readonly recipient: string;
  /** The payload's JSON exactly as it came. */
  readonly payload: string;
}

/** What `writeEvent` takes, made from a delivery. */
export interface DeliveryEvent {
  readonly eventId: string;
  readonly type: string;
  readonly key?: string;
  readonly contentType: 'application/json';
  readonly body: Buffer;
}

/** The request is signed, but it is not a delivery. The message says what to change. */
export class UnusableDelivery extends Error {
  override readonly name = 'UnusableDelivery';
}

const account = z.object({ login: z.string() });
const titled = z.object({ title: z.string() });
/** The few fields that are looked at. A field that is not as expected counts as absent, but for the repository's. */
const fields = z.object({
  action: z.string().nullish().catch(null),
  repository: z
    .object({
      // A name that Postgres takes as text and that serves as the ordering key.
      full_name: z
        .string()
        .regex(/^[^\s/\p{Cc}]+\/[^\s/\p{Cc}]+$/u)
        .max(200),
      owner: account.nullish().catch(null),
    })
    .nullish(),
  organization: account.nullish().catch(null),
  installation: z.object({ account }).nullish().catch(null),
  sender: account.nullish().catch(null),
  issue: titled.nullish().catch(null),
  pull_request: titled.nullish().catch(null),
  discussion: titled.nullish().catch(null),
  release: z.object({ name: z.string().nullish(), tag_name: z.string() }).nullish().catch(null),
});
type Fields = z.infer<typeof fields>;

/**
 * Reads a delivery out of its two headers and its JSON text.
 * @throws {UnusableDelivery} a header is missing or malformed, the text is not a JSON object, or the
 *   repository has no usable name
 */
export function readDelivery(id: string | undefined, event: string | undefined, text: string): Delivery {
  if (id === undefined || !/^[\x21-\x7e]{1,100}$/.test(id))
    throw new UnusableDelivery('x-github-delivery must be 1 to 100 visible ASCII characters');
  if (event === undefined || !/^[a-z0-9_]{1,64}$/.test(event))
    throw new UnusableDelivery('x-github-event must be a name such as pull_request');
  const found = fields.safeParse(parse(text));
  if (!found.success)
    throw new UnusableDelivery(
      'repository.full_name must be a name such as octo/hello, or repository absent',
    );
  const title = titleOf(found.data);
  return {
    id,
    event,
    action: found.data.action || null,
    repository: found.data.repository?.full_name ?? null,
    sender: found.data.sender?.login ?? null,
    ...(title !== undefined && { title }),
    recipient: `${mailboxName(ownerOf(found.data))}@example.org`,
    payload: text,
  };
}

/** The outbox event of a delivery. Its body carries the payload's own bytes, so that no number loses digits. */
export function toEvent(delivery: Delivery, eventId: string): DeliveryEvent {
  const { id, event, action, repository, sender, title, recipient, payload } = delivery;
  const known = JSON.stringify({ deliveryId: id, event, action, repository, sender, title, recipient });
  return {
    eventId,
    type: typeOf(event, action),
    ...(repository !== null && { key: repository }),
    contentType: 'application/json',
    body: Buffer.from(`${known.slice(0, -1)},"payload":${payload}}`),
  };
}

/**
 * `github.<event>.<action>`. The action of a `repository_dispatch` is any text its sender likes, and a dot in
 * it would be one word more to every binding.
 */
export function typeOf(event: string, action: string | null): string {
  if (action === null) return `github.${event}`;
  return `github.${event}.${action.replace(/[^A-Za-z0-9_-]+/g, '_').slice(0, 100)}`;
}

function parse(text: string): object {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new UnusableDelivery('the body is not JSON; set the webhook’s content type to application/json');
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new UnusableDelivery('the body is JSON, but not an object');
  return value;
}

function titleOf({ issue, pull_request, discussion, release }: Fields): string | undefined {
  return (issue ?? pull_request ?? discussion)?.title ?? (release?.name || release?.tag_name);
}

function ownerOf({ repository, organization, installation, sender }: Fields): string {
  const owner = repository?.full_name.split('/')[0] ?? organization?.login;
  return owner ?? installation?.account.login ?? sender?.login ?? 'nobody';
}

/** `dependabot[bot]` → `dependabot-bot`: always a valid part before the @. */
function mailboxName(login: string): string {
  const name = login
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .slice(0, 60)
    .replace(/^-|-$/g, '');
  return name || 'nobody';
}
