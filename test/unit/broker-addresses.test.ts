import { expect, test } from 'vitest';
import { brokerAccess } from '../../src/broker/index.js';
import { brokerAddressFaults } from '../../src/runtime/broker-addresses.js';

test('one address or several of one cluster', () => {
  expect(brokerAddressFaults('amqp://u:p@a/v')).toEqual([]);
  expect(brokerAddressFaults('amqp://u:p@a/v, amqps://u:p@b:5671/v?heartbeat=5')).toEqual([]);
  expect(brokerAddressFaults('amqp://a,amqp://b/')).toEqual([]);
});

test.each([
  ['amqp://u:hunter2@a/v,', 'address 2 of 2 is empty'],
  ['amqp://u:hunter,2@a/v', 'address 2 of 2 is no address (in a name or password write , as %2C'],
  ['amqp://u:hunter2@a/v,http://u:hunter2@b/v', 'address 2 of 2 does not begin with amqp:// or amqps://'],
  [
    'amqp://u:hunter2@a/v,amqp://u:hunter2@b/w',
    'address 1 of 2 and address 2 of 2 name different virtual hosts',
  ],
  ['http://u:hunter2@a/v', 'it does not begin with'],
])('%s', (list, fault) => {
  const text = brokerAddressFaults(list).join('; ');
  expect(text).toContain(fault);
  expect(text).not.toContain('hunter');
  expect(() => brokerAccess({ RABBITMQ_URL: list }, 'test')).toThrow(fault);
});

test('certificates that cannot be used are told at the start', () => {
  const access = (env: Record<string, string>) => () => brokerAccess(env, 'test');
  const pem = '-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----';
  expect(access({ RABBITMQ_URL: 'amqps://a/v', RABBITMQ_CA: 'x' })).toThrow('RABBITMQ_CA must be PEM text');
  expect(access({ RABBITMQ_URL: 'amqp://a/v', RABBITMQ_CA: pem })).toThrow('no address with amqps://');
  expect(access({ RABBITMQ_URL: 'amqps://a/v', RABBITMQ_CERT: pem })).toThrow('set RABBITMQ_KEY too');
  expect(access({ RABBITMQ_URL: 'amqps://a/v', RABBITMQ_CA: pem })).toThrow('cannot be used');
});
