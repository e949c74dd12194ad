-- The outbox: one row per event, written in the transaction of the business change it tells of.
-- Plain SQL of any language may insert into it; what is optional has a default.
CREATE TABLE IF NOT EXISTS outbox (
  id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- The one id of the whole way: AMQP message_id, inbox messageId.
  event_id        uuid        NOT NULL DEFAULT gen_random_uuid() UNIQUE,
  type            text        NOT NULL CHECK (octet_length(type) BETWEEN 1 AND 255),
  routing_key     text        CHECK (octet_length(routing_key) BETWEEN 1 AND 255),
  -- Compared by its bytes: the relay walks the keys in order, and a language's order costs ten times as much.
  key             text        COLLATE "C" CHECK (octet_length(key) BETWEEN 1 AND 1024),
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

-- Partial on exactly what the relay asks for: a full index on (published_at, id) was a hundred times slower with a
-- million published rows beside it. A row that waits for its time stands in none of the first two, so that no number
-- of such rows is ever read past. A row with a key is found by its key, one step a key: what stands behind the head
-- of a key costs nothing, however much it is.
CREATE INDEX IF NOT EXISTS outbox_free ON outbox (slot, id)
  WHERE published_at IS NULL AND parked_at IS NULL AND publish_after IS NULL AND next_attempt_at IS NULL AND key IS NULL;
CREATE INDEX IF NOT EXISTS outbox_keyed ON outbox (slot, key, id)
  WHERE published_at IS NULL AND parked_at IS NULL AND publish_after IS NULL AND next_attempt_at IS NULL AND key IS NOT NULL;
CREATE INDEX IF NOT EXISTS outbox_waiting ON outbox (slot, greatest(publish_after, next_attempt_at))
  WHERE published_at IS NULL AND parked_at IS NULL AND (publish_after IS NOT NULL OR next_attempt_at IS NOT NULL);
-- What may hold its key back: it waits after a failure, or is parked.
CREATE INDEX IF NOT EXISTS outbox_holding ON outbox (key, id)
  WHERE published_at IS NULL AND key IS NOT NULL AND (next_attempt_at IS NOT NULL OR parked_at IS NOT NULL);
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

-- For languages without a helper: select outbox_write('order.placed', '{"orderId":"o-1"}', key => 'o-1'); what is no JSON
-- goes as bytes => '\x…', content_type => '…'. Refused is what could not be sent, or would arrive as something else
-- (docs/writing-events.md): the same as by writeEvent, every fault in one message.
CREATE OR REPLACE FUNCTION outbox_write(
  type          text,
  body          jsonb       DEFAULT NULL,
  key           text        DEFAULT NULL,
  routing_key   text        DEFAULT NULL,
  headers       jsonb       DEFAULT '{}',
  event_id      uuid        DEFAULT gen_random_uuid(),
  publish_after timestamptz DEFAULT NULL,
  bytes         bytea       DEFAULT NULL,
  content_type  text        DEFAULT 'application/json'
) RETURNS uuid
LANGUAGE plpgsql AS $$
DECLARE
  max_body_bytes CONSTANT int := 8388608; -- 8 MiB, the default of MAX_BODY_BYTES: the relay parks what is larger
  content bytea := coalesce(bytes, convert_to(body::text, 'UTF8'));
  given   jsonb := coalesce(headers, '{}');
  own_id  uuid  := coalesce(event_id, gen_random_uuid());
  mime    text  := coalesce(content_type, 'application/json');
  faults  text;
BEGIN
  SELECT string_agg(c.fault, '; ') INTO faults FROM (VALUES
    (coalesce(octet_length(outbox_write.type), 0) NOT BETWEEN 1 AND 255,
      'type must have 1 to 255 bytes in UTF-8: give a short name such as order.placed'),
    (octet_length(outbox_write.routing_key) NOT BETWEEN 1 AND 255,
      'routing_key must have 1 to 255 bytes in UTF-8: shorten it, or leave it out and type is taken'),
    (octet_length(outbox_write.key) NOT BETWEEN 1 AND 1024,
      'key must have 1 to 1024 bytes in UTF-8: shorten it, or leave it out'),
    (octet_length(mime) NOT BETWEEN 1 AND 255,
      'content_type must have 1 to 255 bytes: shorten it, or leave it out for application/json'),
    (content IS NULL, 'body is null: give body (a JSON null is ''null''::jsonb), or bytes with content_type'),
    (body IS NOT NULL AND bytes IS NOT NULL, 'body and bytes are both given: leave out one of the two'),
    (octet_length(content) > max_body_bytes, format(
      'body has %s bytes, more than %s: store it elsewhere and send a reference', octet_length(content), max_body_bytes)),
    (outbox_write.key IS NOT NULL AND outbox_write.publish_after IS NOT NULL,
      'publish_after is given together with key, and would hold back every later event of that key: leave out one of the two'),
    (NOT isfinite(outbox_write.publish_after), 'publish_after is infinite: give a time'),
    (jsonb_typeof(given) <> 'object', 'headers is no object: give one of names and values')
  ) AS c(wrong, fault) WHERE c.wrong;

  IF jsonb_typeof(given) = 'object' AND given <> '{}' THEN
    SELECT concat_ws('; ', faults, string_agg(format('headers.%s %s', left(c.name, 60), c.fault), '; ' ORDER BY c.name)
                       FILTER (WHERE c.fault IS NOT NULL),
                     CASE WHEN count(*) FILTER (WHERE c.name <> 'traceparent') > 64
                          THEN 'headers are more than the 64 that the inbox keeps: put what belongs to the event into the body' END,
                     CASE WHEN sum(c.size) > 32768
                          THEN 'headers have more than 32768 bytes in all: put what belongs to the event into the body' END)
      INTO faults
      FROM (SELECT h.name, octet_length(h.name) + octet_length(h.value #>> '{}') AS size, CASE
          WHEN h.lower_name IN ('cc', 'bcc')
            THEN 'has a meaning for the broker, which would send copies: use another name'
          WHEN h.lower_name IN ('x-key', 'x-sequence', 'x-created-at-ms', 'x-reason', 'x-detail', 'x-died-at-ms',
                                'x-replayed-from', 'x-replay-count') OR h.lower_name ~
               '^(x-original-|x-death|x-first-death-|x-last-death-|x-delivery-count|x-acquired-count)'
            THEN 'is a header that the way itself writes: use another name'
          WHEN h.lower_name = 'traceparent' AND (h.name <> 'traceparent' OR
               h.value #>> '{}' !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$')
            THEN 'is not a W3C traceparent: write 00-<32 hex digits>-<16>-<2>, and the name in small letters'
          WHEN h.name LIKE '$%' OR h.name IN ('__proto__', '_bsontype')
            THEN 'has a name that the inbox does not keep: use another name'
          WHEN octet_length(h.name) NOT BETWEEN 1 AND 255
            THEN 'must have a name of 1 to 255 bytes: use another name'
          WHEN h.kind NOT IN ('string', 'number', 'boolean')
            THEN format('is of the kind %s; a header is a string, a number or a boolean: write it as a string', h.kind)
          WHEN CASE h.kind WHEN 'number' THEN abs((h.value #>> '{}')::numeric) > 9007199254740991 END
            THEN 'is a number beyond 2^53 - 1, which AMQP clients do not carry alike: write it as a string'
          WHEN octet_length(h.name) + octet_length(h.value #>> '{}') > 1024
            THEN 'has more than the 1024 bytes, name and value together, that the inbox keeps: put it into the body'
        END AS fault
        FROM (SELECT e.key AS name, lower(e.key COLLATE "C") AS lower_name, e.value, jsonb_typeof(e.value) AS kind
                FROM jsonb_each(given) AS e) AS h) AS c;
  END IF;
  IF faults <> '' THEN
    RAISE EXCEPTION 'outbox_write: the event was not written: %', faults USING ERRCODE = 'check_violation';
  END IF;

  INSERT INTO outbox (event_id, type, routing_key, key, body, content_type, headers, publish_after)
  VALUES (own_id, outbox_write.type, outbox_write.routing_key, outbox_write.key, content, mime, given,
          outbox_write.publish_after);
  RETURN own_id;
END
$$;
