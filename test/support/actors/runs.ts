import { MongoClient } from 'mongodb';

/** One start of an effect; `ended` once it ran to its end. */
export interface RunRecord {
  readonly actor: string;
  readonly messageId: string;
  readonly nth: number;
  readonly pid: number;
  readonly ended?: boolean;
  /** What the effect saw of its steps, signal and commit. */
  readonly seen?: string[];
}

/** Counts what effects do, outside the inbox, and tells each what to do. */
export interface Runs {
  begin(messageId: string): Promise<{
    /** 1 for the first start. */
    readonly nth: number;
    /** What the test planned for this start: `ok` unless it said otherwise. */
    readonly plan: string;
    saw(what: string): Promise<void>;
    ended(): Promise<void>;
  }>;
  /** Resolves when the test released the message, or `signal` aborts. */
  released(messageId: string, signal?: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

/** Plans by start; the last one serves for all that follow. */
export interface Plan {
  readonly _id: string;
  readonly plans?: readonly string[];
  readonly released?: boolean;
}

const LOOK_MS = 20;

export async function openRuns(uri: string, actor: string): Promise<Runs> {
  const client = new MongoClient(uri);
  await client.connect();
  const runs = client.db().collection<RunRecord>('test_runs');
  const plans = client.db().collection<Plan>('test_plans');
  return {
    begin: async (messageId) => {
      const nth = (await runs.countDocuments({ actor, messageId })) + 1;
      const { insertedId } = await runs.insertOne({ actor, messageId, nth, pid: process.pid });
      const planned = (await plans.findOne({ _id: messageId }))?.plans ?? ['ok'];
      return {
        nth,
        plan: planned[Math.min(nth, planned.length) - 1] ?? 'ok',
        saw: async (what) => {
          await runs.updateOne({ _id: insertedId }, { $push: { seen: what } });
        },
        ended: async () => {
          await runs.updateOne({ _id: insertedId }, { $set: { ended: true } });
        },
      };
    },
    released: async (messageId, signal) => {
      while (signal?.aborted !== true) {
        if ((await plans.findOne({ _id: messageId }))?.released === true) return;
        await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      }
    },
    close: () => client.close(),
  };
}
