import { describe, expect, it } from 'vitest';
import type { Processor } from '../../src/actor/index.js';
import { notify } from '../../src/processors/notify.js';
import { stats } from '../../src/processors/stats.js';
import { readDelivery, toEvent, typeOf, UnusableDelivery } from '../../examples/deliveries/delivery.js';
import { loadPayloads } from '../../examples/deliveries/payloads.js';

const EVENT_ID = '00000000-0000-4000-8000-000000000001';
const payloads = loadPayloads();

/** As a topic exchange matches: `*` is one word, `#` any number. */
const subscribes = ({ subscribes }: Processor, type: string): boolean =>
  subscribes.some((pattern) => matches(pattern.split('.'), type.split('.')));

function matches([pattern, ...patterns]: string[], words: string[]): boolean {
  if (pattern === undefined) return words.length === 0;
  if (pattern === '#')
    return matches(patterns, words) || (words.length > 0 && matches(['#', ...patterns], words.slice(1)));
  return words.length > 0 && (pattern === '*' || pattern === words[0]) && matches(patterns, words.slice(1));
}

const delivery = (payload: object, event = 'issues') => readDelivery('d-1', event, JSON.stringify(payload));

describe('the real payloads', () => {
  const events = payloads.map(({ event, action, body }, index) => {
    const read = readDelivery(`d-${index}`, event, body.toString());
    const made = toEvent(read, EVENT_ID);
    return {
      event,
      action,
      raw: body.toString(),
      read,
      made,
      body: JSON.parse(made.body.toString()) as object,
    };
  });

  it('are 329, of which 49 are about no repository', () => {
    expect(payloads).toHaveLength(329);
    expect(events.filter(({ read }) => read.repository === null)).toHaveLength(49);
  });

  it('all become events that keep the payload whole', () => {
    for (const { event, action, raw, read, made, body } of events) {
      expect(made.type).toBe(action === undefined ? `github.${event}` : `github.${event}.${action}`);
      expect(made.key).toBe(read.repository ?? undefined);
      expect(body).toMatchObject({
        deliveryId: read.id,
        event,
        action: action ?? null,
        recipient: read.recipient,
      });
      expect(JSON.stringify((body as { payload: object }).payload)).toBe(raw);
    }
  });

  it('are accepted by every actor that subscribes to them', () => {
    const taken = { notify: 0, stats: 0 };
    for (const { made, body } of events) {
      for (const actor of [notify, stats]) {
        if (!subscribes(actor, made.type)) continue;
        taken[actor.name as keyof typeof taken] += 1;
        expect(actor.schema.safeParse(body), `${actor.name}: ${made.type}`).toMatchObject({ success: true });
      }
    }
    expect(taken.stats).toBe(329);
    expect(taken.notify).toBeGreaterThan(50);
  });
});

describe('a delivery', () => {
  it('keeps numbers that JavaScript cannot hold', () => {
    const text = '{"installation":{"id":9007199254740993},"repository":{"full_name":"octo/hello"}}';
    const event = toEvent(readDelivery('d-1', 'push', text), EVENT_ID);
    expect(event.body.toString()).toContain('9007199254740993');
  });

  it('names the release by its tag when it has no name', () => {
    expect(delivery({ release: { name: null, tag_name: 'v1' } }, 'release').title).toBe('v1');
    expect(delivery({ release: { name: '', tag_name: 'v1' } }, 'release').title).toBe('v1');
    expect(delivery({ release: { name: 'One', tag_name: 'v1' } }, 'release').title).toBe('One');
  });

  it('has a valid recipient whatever the owner is called', () => {
    const recipient = (login: string) => delivery({ organization: { login } }).recipient;
    expect(recipient('Octo-Org')).toBe('octo-org@example.org');
    expect(recipient('dependabot[bot]')).toBe('dependabot-bot@example.org');
    expect(recipient('\r\nBcc: all@x.org')).toBe('bcc-all-x-org@example.org');
    expect(recipient('ж')).toBe('nobody@example.org');
    expect(recipient('a'.repeat(500))).toHaveLength(60 + '@example.org'.length);
    expect(delivery({}).recipient).toBe('nobody@example.org');
  });

  it('counts a field of another shape as absent', () => {
    const odd = { action: 7, sender: 'me', issue: { title: 3 }, organization: [], repository: null };
    expect(delivery(odd)).toMatchObject({ action: null, sender: null, repository: null });
    expect(delivery(odd)).not.toHaveProperty('title');
  });

  it.each([
    ['not JSON', 'd-1', 'push', '{"a":', 'not JSON'],
    ['a form', 'd-1', 'push', 'payload=%7B%7D', 'content type'],
    ['an array', 'd-1', 'push', '[]', 'not an object'],
    ['null', 'd-1', 'push', 'null', 'not an object'],
    ['no id', undefined, 'push', '{}', 'x-github-delivery'],
    ['an id with a space', 'd 1', 'push', '{}', 'x-github-delivery'],
    ['no event', 'd-1', undefined, '{}', 'x-github-event'],
    ['an event with a dot', 'd-1', 'a.b', '{}', 'x-github-event'],
    ['a nameless repository', 'd-1', 'push', '{"repository":{}}', 'full_name'],
    ['NUL in the repository', 'd-1', 'push', '{"repository":{"full_name":"a/b\\u0000"}}', 'full_name'],
  ])('is refused with a reason: %s', (_what, id, event, text, reason) => {
    expect(() => readDelivery(id, event, text)).toThrow(UnusableDelivery);
    expect(() => readDelivery(id, event, text)).toThrow(reason);
  });
});

describe('the type', () => {
  it('has one word for the action, however it is spelt', () => {
    expect(typeOf('push', null)).toBe('github.push');
    expect(typeOf('repository_dispatch', 'on-demand-test')).toBe('github.repository_dispatch.on-demand-test');
    expect(typeOf('repository_dispatch', 'deploy v1.2 → all')).toBe(
      'github.repository_dispatch.deploy_v1_2_all',
    );
    expect(typeOf('repository_dispatch', 'x'.repeat(1_000)).length).toBeLessThan(200);
  });
});
