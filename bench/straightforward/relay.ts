import { connect, type ConfirmChannel } from 'amqplib';
import pg from 'pg';

// What a good engineer writes in an afternoon: a transaction, SKIP LOCKED, publish and wait for each confirm, mark.
const { DATABASE_URL, RABBITMQ_URL = '' } = process.env;
const pool = new pg.Pool({ connectionString: DATABASE_URL });
const model = await connect(RABBITMQ_URL);
const channel = await model.createConfirmChannel();

for (;;) {
  const relayed = await relayBatch(pool, channel);
  if (relayed === 0) await new Promise((resolve) => setTimeout(resolve, 100));
}

interface Row {
  readonly id: string;
  readonly event_id: string;
  readonly type: string;
  readonly body: Buffer;
}

async function relayBatch(from: pg.Pool, to: ConfirmChannel): Promise<number> {
  const client = await from.connect();
  try {
    await client.query('BEGIN');
    const { rows } = await client.query<Row>(
      `SELECT id, event_id, type, body FROM raw_outbox WHERE published_at IS NULL
        ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED`,
    );
    for (const row of rows) {
      await publish(to, row);
      await client.query('UPDATE raw_outbox SET published_at = now() WHERE id = $1', [row.id]);
    }
    await client.query('COMMIT');
    return rows.length;
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  } finally {
    client.release();
  }
}

function publish(to: ConfirmChannel, { event_id, type, body }: Row): Promise<void> {
  return new Promise((resolve, reject) => {
    const options = {
      messageId: event_id,
      type,
      persistent: true,
      mandatory: true,
      contentType: 'application/json',
    };
    to.publish('twinbox.events', type, body, options, (error) => {
      if (error === null) resolve();
      else reject(error as Error);
    });
  });
}
