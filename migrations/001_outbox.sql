-- The outbox: one row per event, written in the transaction of the business change it tells of.
-- Plain SQL of any language may insert into it; what is optional has a default.
CREATE TABLE IF NOT EXISTS outbox (
  id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- The one id of the whole way: AMQP message_id, inbox messageId.
  event_id        uuid        NOT NULL DEFAULT gen_random_uuid() UNIQUE,
  type            text        NOT NULL CHECK (octet_length(type) BETWEEN 1 AND 255),
  routing_key     text        CHECK (octet_length(routing_key) BETWEEN 1 AND 255),
  key             text        CHECK (octet_length(key) BETWEEN 1 AND 1024),
  -- Ordering slot. 32 for ever: were the number to change, order would depend on when a row was written.
  slot            smallint    NOT NULL GENERATED ALWAYS AS
                              ((hashtextextended(coalesce(key, event_id::text), 0) & 31)::smallint) STORED,
  body            bytea       NOT NULL,
  content_type    text        NOT NULL DEFAULT 'application/json' CHECK (octet_length(content_type) BETWEEN 1 AND 255),
  headers         jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(headers) = 'object'),
  created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  publish_after   timestamptz,
  published_at    timestamptz,
  attempts        int         NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  next_attempt_at timestamptz,
  parked_at       timestamptz,
  last_error      text,
  CONSTRAINT outbox_published_or_parked CHECK (published_at IS NULL OR parked_at IS NULL),
  -- A delayed row would hold back every later row of its key.
  CONSTRAINT outbox_delay_has_no_key CHECK (key IS NULL OR publish_after IS NULL)
);

-- Partial on exactly what the relay asks for. A full index on (published_at, id) was a hundred times slower
-- with a million published rows beside it, and one that begins with the slot cannot give the order of ids.
CREATE INDEX IF NOT EXISTS outbox_pending ON outbox (id) WHERE published_at IS NULL AND parked_at IS NULL;
CREATE INDEX IF NOT EXISTS outbox_parked ON outbox (parked_at) WHERE parked_at IS NOT NULL;

-- A queue in a table: every row is updated once and deleted once, so vacuum by count and not by share.
ALTER TABLE outbox SET (
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_insert_scale_factor = 0,
  autovacuum_vacuum_insert_threshold = 10000,
  autovacuum_analyze_scale_factor = 0,
  autovacuum_analyze_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0
);

-- For languages without a helper: select outbox_write('order.placed', '{"orderId":"o-1"}', key => 'o-1');
CREATE OR REPLACE FUNCTION outbox_write(
  type          text,
  body          jsonb,
  key           text        DEFAULT NULL,
  routing_key   text        DEFAULT NULL,
  headers       jsonb       DEFAULT '{}',
  event_id      uuid        DEFAULT gen_random_uuid(),
  publish_after timestamptz DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql AS $$
BEGIN
  -- Headers that the broker acts on would put copies into queues that did not subscribe.
  IF headers ?| ARRAY['CC', 'BCC'] THEN
    RAISE EXCEPTION 'outbox_write: the headers CC and BCC have a meaning for the broker; use another name'
      USING ERRCODE = 'check_violation';
  END IF;
  INSERT INTO outbox (event_id, type, routing_key, key, body, headers, publish_after)
  VALUES (outbox_write.event_id, outbox_write.type, outbox_write.routing_key, outbox_write.key,
          convert_to(outbox_write.body::text, 'UTF8'), outbox_write.headers, outbox_write.publish_after);
  RETURN outbox_write.event_id;
END
$$;
