/**
 * Named points between two stores, where a kill leaves something behind that somebody has to repair
 * (docs/crash-table.md). The code announces them; a test waits there, or kills the process there.
 */
export const PROBE_POINTS = [
  'relay.claimed',
  'relay.confirmed',
  'relay.marked',
  'ingest.stored',
  'ingest.acked',
  'ingest.enqueued',
  'ingest.deadlettered',
  'run.claimed',
  'run.effect',
  'run.finished',
  'run.failed',
  'run.handedback',
  'sweep.enqueued',
  'replay.moved',
] as const;

export type ProbePoint = (typeof PROBE_POINTS)[number];

/** Called with the ids that just passed the point. */
export type Probe = (point: ProbePoint, messageIds: readonly string[]) => void;

export const noProbe: Probe = () => undefined;
