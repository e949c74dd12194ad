/** What the broker refused, in words for the operator, with the fix. */
export interface Explained {
  readonly kind: 'mismatch' | 'right' | 'missing' | 'login' | 'vhost';
  /** One line: what, why, and what to do. */
  readonly text: string;
  /** Of a mismatch: what is declared otherwise. */
  readonly mismatch?: Mismatch;
}

/** Something exists already and differs from what was to be declared. */
export interface Mismatch extends ArgumentDifference {
  readonly what: 'queue' | 'exchange';
  readonly name: string;
}

export interface ArgumentDifference {
  readonly argument: string;
  /** What the broker has; undefined: nothing. */
  readonly have: string | undefined;
  /** What this version declares; undefined: nothing. */
  readonly want: string | undefined;
}

type Right = 'configure' | 'write' | 'read';

const INEQUIVALENT =
  /inequivalent arg '([^']+)' for (queue|exchange) '(.*)' in vhost '.*': received (.+) but current is ([^"]+)/;
const REFUSED =
  /(?:(configure|write|read) )?access to (queue|exchange) '(.*)' in vhost '(.*)' refused for user '([^']*)'/;
const NOT_FOUND = /no (queue|exchange) '(.*)' in vhost '(.*)'/;

/**
 * What a refusal of the broker means; undefined for anything else.
 * @param error as the client library throws it: the call's class and method ids tell which right was missing
 * @param address the address that was dialled, for a refused connection
 */
export function explain(error: unknown, address?: string): Explained | undefined {
  const { message = '' } = error as { message?: string };
  const { classId, methodId } = error as { classId?: number; methodId?: number };
  return (
    mismatchIn(message) ??
    rightIn(message, `${classId ?? ''}.${methodId ?? ''}`) ??
    missingIn(message) ??
    connectionIn(message, address)
  );
}

function mismatchIn(message: string): Explained | undefined {
  const found = INEQUIVALENT.exec(message);
  if (found === null) return undefined;
  const [, argument = '', what = '', name = '', want = '', have = ''] = found;
  const mismatch = {
    what: what as 'queue' | 'exchange',
    name,
    argument,
    have: valueIn(have),
    want: valueIn(want),
  };
  return { kind: 'mismatch', text: mismatchText(mismatch), mismatch };
}

/** A mismatch and the way out of it. */
export function mismatchText({ what, name, argument, have, want }: Mismatch): string {
  const told = `${what} '${name}' exists with ${argument} ${have ?? 'not set'}, and must have ${want ?? 'none'}`;
  return what === 'queue'
    ? `${told}: \`twinbox topology apply --migrate-queue ${name}\` makes it anew and keeps its content`
    : `${told}: \`twinbox topology apply --replace-exchange ${name}\` makes it anew with all its bindings`;
}

/** `none`, `'50'`, or `the value '50' of type 'byte'`, as the broker writes them. */
function valueIn(text: string): string | undefined {
  if (text.startsWith('none')) return undefined;
  return /'(.*?)'(?: of type|$)/.exec(text.trim())?.[1] ?? text.trim();
}

function rightIn(message: string, method: string): Explained | undefined {
  const found = REFUSED.exec(message);
  if (found === null) return undefined;
  const [, said, what = '', name = '', vhost = '', user = ''] = found;
  const right = (said as Right | undefined) ?? rightOf(what, method);
  const told =
    right === undefined
      ? `has no right on ${what} '${name}'`
      : `has no right to ${right === 'write' ? 'write to' : right} ${what} '${name}'`;
  return {
    kind: 'right',
    text: `user '${user}' ${told} in virtual host '${vhost}': let the ${right ?? 'configure, write and read'} pattern match it, as with \`rabbitmqctl set_permissions -p ${vhost} ${user} '^twinbox\\.' '^(twinbox\\.|amq\\.default$)' '^twinbox\\.'\``,
  };
}

/** Which right a call needs, by the protocol's numbers; RabbitMQ before 4 does not say it. */
function rightOf(what: string, method: string): Right | undefined {
  switch (method) {
    case '50.10': // queue.declare: to name a dead-letter exchange one must be able to write to it
      return what === 'exchange' ? 'write' : 'configure';
    case '40.10':
    case '40.20':
    case '50.40': // declare, delete
      return 'configure';
    case '50.20':
    case '50.50': // bind, unbind
      return what === 'queue' ? 'write' : 'read';
    case '60.40': // publish
      return 'write';
    case '60.20':
    case '60.70':
    case '50.30': // consume, get, purge
      return 'read';
    default:
      return undefined;
  }
}

function missingIn(message: string): Explained | undefined {
  const found = NOT_FOUND.exec(message);
  if (found === null) return undefined;
  const [, what = '', name = '', vhost = ''] = found;
  return {
    kind: 'missing',
    text: `there is no ${what} '${name}' in virtual host '${vhost}': \`twinbox topology apply\` declares what belongs to Twinbox`,
  };
}

/** A connection that is refused before it is open. */
function connectionIn(message: string, address: string | undefined): Explained | undefined {
  if (address === undefined) return undefined;
  const { username, pathname } = new URL(address);
  const user =
    username === '' ? 'the user of the certificate (or guest)' : `user '${decodeURIComponent(username)}'`;
  const vhost = pathname === '' || pathname === '/' ? '/' : decodeURIComponent(pathname.slice(1));
  if (/ACCESS.REFUSED/.test(message))
    return {
      kind: 'login',
      text: `refuses the login of ${user}: its name or password is wrong, or it may not come from here (the broker's log says which)`,
    };
  // The library swallows what the broker says when it closes a connection that is being opened (530).
  if (message.includes('Expected ConnectionOpenOk'))
    return {
      kind: 'vhost',
      text: `lets ${user} not into virtual host '${vhost}': it is missing (\`rabbitmqctl add_vhost ${vhost}\`), or the user has no rights there (\`rabbitmqctl set_permissions\`)`,
    };
  return undefined;
}
