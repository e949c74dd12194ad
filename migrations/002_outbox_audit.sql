-- Who did what to rows of the outbox by hand, and how many it changed. Written in the transaction of the change.
CREATE TABLE IF NOT EXISTS outbox_audit (
  id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  who     text        NOT NULL,
  command text        NOT NULL,
  reason  text,
  filter  jsonb       NOT NULL,
  -- Grows batch by batch: a command that was killed has written down how far it came.
  rows    int         NOT NULL DEFAULT 0
);

-- For a window that is published again, and for the purge: both would otherwise read everything that was ever published.
-- Marks come in the order of time, so that each adds at the right edge of the index.
CREATE INDEX IF NOT EXISTS outbox_published ON outbox (published_at) WHERE published_at IS NOT NULL;
