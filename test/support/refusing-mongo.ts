import { BSON } from 'mongodb';
import { createConnection, createServer, type AddressInfo } from 'node:net';

/** A MongoDB that answers everything but refuses inserts while `refuse` says so, as one over its quota does. */
export interface RefusingMongo {
  readonly port: number;
  readonly refused: number;
  close(): Promise<void>;
}

const OP_MSG = 2_013;
const HEADER_BYTES = 16;
/** After the header: 4 bytes of flags, 1 byte that says "one document follows". */
const BODY_AT = HEADER_BYTES + 5;

/** Stands before the real server and looks into the wire protocol: the answer is the driver's to read. */
export async function startRefusingMongo(
  target: { host: string; port: number },
  refuse: () => boolean,
): Promise<RefusingMongo> {
  let refused = 0;
  const server = createServer((client) => {
    const upstream = createConnection(target);
    upstream.pipe(client);
    for (const socket of [client, upstream]) {
      socket
        .on('error', () => undefined)
        .on('close', () => {
          client.destroy();
          upstream.destroy();
        });
    }
    let buffer = Buffer.alloc(0);
    client.on('data', (chunk: Buffer) => {
      buffer = Buffer.concat([buffer, chunk]);
      while (buffer.length >= 4 && buffer.length >= buffer.readInt32LE(0)) {
        const message = buffer.subarray(0, buffer.readInt32LE(0));
        buffer = buffer.subarray(message.length);
        if (refuse() && isInsert(message)) {
          refused += 1;
          client.write(refusalOf(message));
        } else upstream.write(message);
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    get refused() {
      return refused;
    },
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
}

function isInsert(message: Buffer): boolean {
  if (message.readInt32LE(12) !== OP_MSG || message[BODY_AT - 1] !== 0) return false;
  const command = BSON.deserialize(message.subarray(BODY_AT, BODY_AT + message.readInt32LE(BODY_AT)));
  return 'insert' in command;
}

function refusalOf(message: Buffer): Buffer {
  const body = BSON.serialize({
    ok: 0,
    errmsg: 'over the storage quota',
    code: 8_000,
    codeName: 'AtlasError',
  });
  const answer = Buffer.alloc(BODY_AT + body.length);
  answer.writeInt32LE(answer.length, 0);
  answer.writeInt32LE(1, 4);
  answer.writeInt32LE(message.readInt32LE(4), 8); // in answer to this request
  answer.writeInt32LE(OP_MSG, 12);
  answer.set(body, BODY_AT);
  return answer;
}
