import { connect } from 'amqplib';
import type pg from 'pg';
import { EVENTS_EXCHANGE } from '../../src/broker/index.js';
import { BODY } from '../stores.js';

/** A table with nothing that a relay does not need at the very least: what the raw limit and the straightforward relay use. */
const TABLE = `
  DROP TABLE IF EXISTS raw_outbox;
  CREATE TABLE raw_outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid NOT NULL DEFAULT gen_random_uuid(),
    type text NOT NULL, body bytea NOT NULL, published_at timestamptz);
  CREATE INDEX ON raw_outbox (id) WHERE published_at IS NULL`;

export async function fillRawTable(pool: pg.Pool, rows: number): Promise<void> {
  await pool.query(TABLE);
  await pool.query(
    `INSERT INTO raw_outbox (type, body) SELECT 'bench.event', $1 FROM generate_series(1, $2)`,
    [BODY, rows],
  );
  await pool.query('VACUUM ANALYZE raw_outbox');
  await pool.query('CHECKPOINT');
}

/**
 * Select a batch, mark it, on one connection and with no transaction open in between.
 * @param rows what `fillRawTable` wrote @returns seconds
 */
export async function claimAndMark(pool: pg.Pool, rows: number, batch: number): Promise<number> {
  const client = await pool.connect();
  try {
    const began = performance.now();
    for (let done = 0; done < rows;) {
      const { rows: claimed } = await client.query<{ id: string }>({
        name: 'claim',
        text: 'SELECT id, event_id, type, body FROM raw_outbox WHERE published_at IS NULL ORDER BY id LIMIT $1',
        values: [batch],
      });
      await client.query({
        name: 'mark',
        text: 'UPDATE raw_outbox SET published_at = clock_timestamp() WHERE id = ANY($1::bigint[])',
        values: [claimed.map(({ id }) => id)],
      });
      done += claimed.length;
    }
    return (performance.now() - began) / 1_000;
  } finally {
    client.release();
  }
}

/** Confirmed, mandatory, persistent publishes, `window` of them in flight. @returns seconds */
export async function publishConfirmed(rabbitUrl: string, messages: number, window: number): Promise<number> {
  const model = await connect(rabbitUrl, { noDelay: true });
  try {
    const channel = await model.createConfirmChannel();
    let [sent, confirmed] = [0, 0];
    const began = performance.now();
    await new Promise<void>((resolve, reject) => {
      channel.on('return', () => reject(new Error('the bench queue is not bound')));
      const fill = (): void => {
        while (sent - confirmed < window && sent < messages) {
          const messageId = `bench-${sent}`;
          sent += 1;
          channel.publish(
            EVENTS_EXCHANGE,
            'bench.event',
            BODY,
            {
              messageId,
              mandatory: true,
              persistent: true,
              type: 'bench.event',
              contentType: 'application/json',
            },
            (error) => {
              if (error !== null) reject(error as Error);
              confirmed += 1;
              if (confirmed === messages) resolve();
              else fill();
            },
          );
        }
      };
      fill();
    });
    return (performance.now() - began) / 1_000;
  } finally {
    await model.close();
  }
}
