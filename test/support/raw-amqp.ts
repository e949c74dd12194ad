import { connect, type Socket } from 'node:net';
import { once } from 'node:events';

const END = 0xce;

/** One string of at most 255 bytes, and one of any length, as the protocol writes them. */
const short = (text: string | Buffer): Buffer => {
  const bytes = Buffer.from(text as string);
  return Buffer.concat([Buffer.from([bytes.length]), bytes]);
};
const long = (bytes: Buffer): Buffer => {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return Buffer.concat([length, bytes]);
};
const u16 = (value: number): Buffer => {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16BE(value);
  return bytes;
};
const u64 = (value: number): Buffer => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(value));
  return bytes;
};

export function frame(type: number, channel: number, payload: Buffer): Buffer {
  return Buffer.concat([Buffer.from([type]), u16(channel), long(payload), Buffer.from([END])]);
}

const method = (channel: number, classId: number, methodId: number, ...args: Buffer[]): Buffer =>
  frame(1, channel, Buffer.concat([u16(classId), u16(methodId), ...args]));

/** A header table of `depth` tables inside each other, each under the name n: 7 bytes a level. */
export function nested(depth: number): Buffer {
  const table = Buffer.alloc(7 * depth);
  for (let level = 0; level < depth; level += 1) {
    const at = 7 * level;
    table.write('\u0001nF', at, 'latin1');
    table.writeUInt32BE(table.length - at - 7, at + 3);
  }
  return table;
}

/** An entry `name` of a header table, with a table as its value. */
export const tableEntry = (name: string, table: Buffer): Buffer =>
  Buffer.concat([short(name), Buffer.from('F'), long(table)]);

/** The content header of a message with a header table, message id and type; persistent. */
export function contentHeader(
  channel: number,
  table: Buffer,
  messageId: string | Buffer,
  type: string,
  bodySize: number,
): Buffer {
  const flags = 0x2000 | 0x1000 | 0x0080 | 0x0020;
  return frame(
    2,
    channel,
    Buffer.concat([
      u16(60), u16(0), u64(bodySize), u16(flags),
      long(table), Buffer.from([2]), short(messageId), short(type),
    ]),
  ); // prettier-ignore
}

/**
 * Publishes one message with a header table or an id that no client library encodes, and waits for the broker's confirm.
 * @throws when the broker closes the connection or the channel over it
 */
export async function publishRaw(
  url: string,
  message: {
    exchange: string;
    routingKey: string;
    table: Buffer;
    /** Bytes: an id that is not UTF-8. */
    messageId: string | Buffer;
    type: string;
    body: Buffer;
  },
): Promise<void> {
  const { hostname, port, username, password, pathname } = new URL(url);
  const socket = connect(Number(port), hostname);
  await once(socket, 'connect');
  const answers = methodsOf(socket);
  const expect = async (classId: number, methodId: number): Promise<void> => {
    const got = await answers();
    if (got[0] !== classId || got[1] !== methodId)
      throw new Error(`the broker answered ${got.join('.')} and not ${classId}.${methodId}`);
  };
  try {
    socket.write(Buffer.from('AMQP\0\0\u0009\u0001', 'latin1'));
    await expect(10, 10);
    const login = Buffer.from(`\0${decodeURIComponent(username)}\0${decodeURIComponent(password)}`);
    socket.write(method(0, 10, 11, long(Buffer.alloc(0)), short('PLAIN'), long(login), short('en_US')));
    await expect(10, 30);
    socket.write(method(0, 10, 31, u16(1), Buffer.from([0, 2, 0, 0]), u16(0)));
    const vhost = pathname === '' || pathname === '/' ? '/' : decodeURIComponent(pathname.slice(1));
    socket.write(method(0, 10, 40, short(vhost), short(''), Buffer.from([0])));
    await expect(10, 41);
    socket.write(method(1, 20, 10, short('')));
    await expect(20, 11);
    socket.write(method(1, 85, 10, Buffer.from([0])));
    await expect(85, 11);
    const { exchange, routingKey, table, messageId, type, body } = message;
    socket.write(method(1, 60, 40, u16(0), short(exchange), short(routingKey), Buffer.from([0])));
    socket.write(contentHeader(1, table, messageId, type, body.length));
    socket.write(frame(3, 1, body));
    await expect(60, 80);
  } finally {
    socket.destroy();
  }
}

/** The class and method of each frame that arrives, one after the other. */
function methodsOf(socket: Socket): () => Promise<[number, number]> {
  let rest = Buffer.alloc(0);
  return async () => {
    for (;;) {
      const size = rest.length < 7 ? Infinity : rest.readUInt32BE(3) + 8;
      if (rest.length >= size) {
        const payload = rest.subarray(7, size - 1);
        rest = rest.subarray(size);
        return [payload.readUInt16BE(0), payload.readUInt16BE(2)];
      }
      const chunk = socket.read() as Buffer | null;
      if (chunk !== null) rest = Buffer.concat([rest, chunk]);
      else if (socket.destroyed || socket.readableEnded) throw new Error('the broker closed the connection');
      else await Promise.race([once(socket, 'readable'), once(socket, 'close')]);
    }
  };
}
