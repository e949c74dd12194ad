import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from 'amqplib';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { migrateOutbox } from '../../src/outbox/index.js';
import { choosePorts } from '../../stack/ports.js';
import { rabbitmq } from '../../stack/rabbitmq.js';
import { brokerNode, brokerPrograms, type BrokerNode } from '../support/broker-node.js';
import { killAll, startType, type Running } from '../support/processes.js';
import { freshDatabase } from '../support/stores.js';
import { until } from '../support/until.js';

/** A broker with a TLS listener that wants a certificate of its clients, made by an authority of our own. */
const ROOT = join(import.meta.dirname, '..', '..', '.stack');
let folder: string;
let node: BrokerNode;
let database: Awaited<ReturnType<typeof freshDatabase>>;
let tlsPort = 0;

const openssl = (...args: string[]): void =>
  void execFileSync('openssl', args, { cwd: folder, stdio: ['ignore', 'ignore', 'pipe'] });
const file = (name: string): string => join(folder, name);

function certificate(name: string, subject: string, alternative?: string): void {
  openssl(
    'req',
    '-newkey',
    'rsa:2048',
    '-nodes',
    '-subj',
    subject,
    '-keyout',
    `${name}.key`,
    '-out',
    `${name}.csr`,
  );
  writeFileSync(file(`${name}.ext`), alternative === undefined ? '' : `subjectAltName=${alternative}\n`);
  openssl('x509', '-req', '-in', `${name}.csr`, '-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-days', '2', '-extfile', `${name}.ext`, '-out', `${name}.pem`); // prettier-ignore
}

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'twinbox-tls-'));
  openssl('req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-subj', '/CN=twinbox test authority', '-days', '2', '-keyout', 'ca.key', '-out', 'ca.pem'); // prettier-ignore
  certificate('server', '/CN=localhost', 'DNS:localhost,IP:127.0.0.1');
  certificate('client', '/CN=twinbox');
  const taken = new Set<number>();
  const ports = await choosePorts(rabbitmq.portNames, {}, taken);
  tlsPort = (await choosePorts(['tls'], {}, taken))['tls'] ?? 0;
  node = await brokerNode({
    root: ROOT,
    name: 'tls-test',
    ports,
    programs: await brokerPrograms(),
    settings: [
      `listeners.ssl.1 = 127.0.0.1:${tlsPort}`,
      `ssl_options.cacertfile = ${file('ca.pem')}`,
      `ssl_options.certfile = ${file('server.pem')}`,
      `ssl_options.keyfile = ${file('server.key')}`,
      'ssl_options.verify = verify_peer',
      'ssl_options.fail_if_no_peer_cert = true',
    ],
  });
  await node.start();
  database = await freshDatabase();
  await migrateOutbox(database.url);
});
afterEach(killAll);
afterAll(async () => {
  await node.remove();
  await database.drop();
  rmSync(folder, { recursive: true, force: true });
});

const tlsUrl = (): string => node.url.replace('amqp://', 'amqps://').replace(/:\d+$/, `:${tlsPort}`);
const start = (env: NodeJS.ProcessEnv): Running =>
  startType('relay', [], { ...process.env, DATABASE_URL: database.url, ...env });
const material = (): NodeJS.ProcessEnv => ({
  RABBITMQ_CA_FILE: file('ca.pem'),
  RABBITMQ_CERT_FILE: file('client.pem'),
  RABBITMQ_KEY_FILE: file('client.key'),
});

test('amqps with an authority of our own and a client certificate: the relay is attached', async () => {
  const relay = start({ RABBITMQ_URL: tlsUrl(), ...material() });
  await relay.line('broker.connected');
  expect(await node.tool('rabbitmqctl', ['list_connections', 'ssl', 'name'])).toContain('true');
});

test('without our authority the broker is not trusted, without a certificate of ours we are not: told, with the fix', async () => {
  const untrusting = start({ RABBITMQ_URL: tlsUrl() });
  expect((await untrusting.line('broker.unreachable')).msg).toMatch(/certificate/);
  const { RABBITMQ_CA_FILE } = material();
  const anonymous = start({ RABBITMQ_URL: tlsUrl(), RABBITMQ_CA_FILE });
  await anonymous.line('broker.unreachable');
  expect([...untrusting.lines, ...anonymous.lines].some(({ event }) => event === 'broker.connected')).toBe(
    false,
  );
});

test('certificates beside an address without TLS, or a key that is not theirs: exit 78 with the fix', async () => {
  const plain = start({ RABBITMQ_URL: node.url, ...material() });
  expect(await plain.ended).toBe(78);
  expect(plain.text.join('\n')).toContain('amqps://');
  const mixed = start({ RABBITMQ_URL: tlsUrl(), ...material(), RABBITMQ_KEY_FILE: file('server.key') });
  expect(await mixed.ended).toBe(78);
  expect(mixed.text.join('\n')).toContain(
    'RABBITMQ_KEY must be the unencrypted private key of RABBITMQ_CERT',
  );
  expect(plain.text.join('\n') + mixed.text.join('\n')).not.toContain(readFileSync(file('client.key'), 'utf8').slice(40, 80)); // prettier-ignore
});

test('several addresses: one where nobody listens is passed over', async () => {
  const nobody = node.url.replace(/:\d+$/, ':1');
  const relays = [1, 2, 3].map(() => start({ RABBITMQ_URL: `${nobody},${node.url}` }));
  for (const relay of relays) await relay.line('broker.connected', 10_000);
});

test('a password that is changed in RABBITMQ_URL_FILE is taken with the next connecting, in the same process', async () => {
  await node.tool('rabbitmqctl', ['add_user', 'rotating', 'first-password']);
  await node.tool('rabbitmqctl', ['set_permissions', 'rotating', '.*', '.*', '.*']);
  const urlWith = (password: string): string => {
    const url = new URL(node.url);
    url.username = 'rotating';
    url.password = password;
    return url.href;
  };
  writeFileSync(file('url'), urlWith('first-password'));
  const env = { ...process.env, DATABASE_URL: database.url, RABBITMQ_URL_FILE: file('url') };
  Reflect.deleteProperty(env, 'RABBITMQ_URL');
  const relay = startType('relay', [], env);
  await relay.line('broker.connected');
  await node.tool('rabbitmqctl', ['change_password', 'rotating', 'second-password']);
  await node.tool('rabbitmqctl', ['close_all_connections', 'rotated']);
  const refused = await relay.line('broker.unreachable');
  expect(refused.msg).not.toContain('password@');
  const seen = relay.lines.length;
  writeFileSync(file('url'), urlWith('second-password'));
  await relay.line('broker.gone');
  await until(
    'it is connected again',
    () => relay.lines.slice(seen).some(({ event }) => event === 'broker.connected'),
    { ms: 25_000 },
  );
});

test('an exchange of our name and another kind: the relay ends with 78 and names what differs', async () => {
  const model = await connect(node.url);
  const channel = await model.createChannel();
  await channel.deleteExchange('twinbox.events');
  await channel.assertExchange('twinbox.events', 'fanout', { durable: true });
  const relay = start({ RABBITMQ_URL: node.url });
  expect(await relay.ended).toBe(78);
  expect(JSON.stringify(relay.lines) + relay.text.join('\n')).toMatch(/twinbox\.events.*type/);
  await channel.deleteExchange('twinbox.events');
  await model.close();
});
