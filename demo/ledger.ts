import { MongoClient } from 'mongodb';
import pg from 'pg';
import type { Arrived, Sent } from './result.js';

/** Looks into the stores from outside, as an operator with psql and mongosh would. */
export interface Ledger {
  /** How far the deliveries of this run are. */
  progress(): Promise<Progress>;
  sent(): Promise<Sent[]>;
  arrived(): Promise<Arrived[]>;
  /** The sum of the counters of `stats` since the run began. */
  counted(): Promise<number>;
  close(): Promise<void>;
}

export interface Progress {
  readonly sent: number;
  readonly published: number;
  readonly recorded: number;
  readonly processed: number;
}

export async function openLedger(
  urls: { DATABASE_URL: string; MONGODB_URI: string },
  actors: readonly string[],
): Promise<Ledger> {
  const pool = new pg.Pool({ connectionString: urls.DATABASE_URL, max: 2 });
  pool.on('error', () => undefined);
  const client = new MongoClient(urls.MONGODB_URI);
  const db = client.db();
  // One machine, so one clock: what was written from here on belongs to this run.
  const since =
    (await pool.query<{ now: Date }>('SELECT clock_timestamp() AS now')).rows[0]?.now ?? new Date();
  const countAll = async (): Promise<number> => {
    const found = await db
      .collection<{ deliveries: number }>('stats_repository')
      .find()
      .project<{ deliveries: number }>({ deliveries: 1 })
      .toArray();
    return found.reduce((sum, { deliveries }) => sum + deliveries, 0);
  };
  const countedBefore = await countAll();
  const inbox = (actor: string) =>
    db.collection<{ messageId: string; createdAt: Date; processedAt?: Date }>(`inbox_${actor}`);
  const ofThisRun = { createdAt: { $gte: since } };

  return {
    progress: async () => {
      const [rows, recorded, processed] = await Promise.all([
        pool.query<{ sent: number; published: number }>(
          `SELECT count(*)::int AS sent, count(o.published_at)::int AS published
             FROM delivery d JOIN outbox o USING (event_id) WHERE d.received_at >= $1`,
          [since],
        ),
        Promise.all(actors.map((actor) => inbox(actor).countDocuments(ofThisRun))),
        Promise.all(
          actors.map((actor) =>
            inbox(actor).countDocuments({ ...ofThisRun, processedAt: { $type: 'date' } }),
          ),
        ),
      ]);
      const total = (counts: number[]): number => counts.reduce((sum, count) => sum + count, 0);
      return {
        ...(rows.rows[0] ?? { sent: 0, published: 0 }),
        recorded: total(recorded),
        processed: total(processed),
      };
    },
    sent: async () => {
      const { rows } = await pool.query<Sent>(
        `SELECT event_id::text AS "eventId", o.type, o.published_at IS NOT NULL AS published
           FROM delivery d JOIN outbox o USING (event_id) WHERE d.received_at >= $1`,
        [since],
      );
      return rows;
    },
    arrived: async () => {
      const perActor = await Promise.all(
        actors.map(async (actor) => {
          const found = await inbox(actor)
            .find(ofThisRun)
            .project<{ messageId: string; createdAt: Date; processedAt?: Date }>({
              messageId: 1,
              createdAt: 1,
              processedAt: 1,
            })
            .toArray();
          return found.map(({ messageId, createdAt, processedAt }): Arrived => ({
            actor,
            messageId,
            processed: processedAt !== undefined,
            tookMs: processedAt === undefined ? null : processedAt.getTime() - createdAt.getTime(),
          }));
        }),
      );
      return perActor.flat();
    },
    counted: async () => (await countAll()) - countedBefore,
    close: async () => {
      await pool.end();
      await client.close();
    },
  };
}
