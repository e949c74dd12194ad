/** Largest body unless someone says otherwise (8 MiB): of a writer, of the relay, of ingest, and of outbox_write in SQL. */
export const DEFAULT_MAX_BODY_BYTES = 8_388_608;
/** No limit may be larger (15 MiB): the inbox document that holds the body must stay below MongoDB's 16 MiB. */
export const LARGEST_MAX_BODY_BYTES = 15_728_640;
