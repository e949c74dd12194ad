import { isSpanContextValid, trace } from '@opentelemetry/api';
import { HEADER } from '../message/index.js';
import { MAX_HEADERS } from './event-headers.js';

const TRACESTATE = 'tracestate';
/** What every party has to carry, says W3C Trace Context; a longer one is left out. */
const MAX_TRACESTATE_BYTES = 512;

type Headers = Readonly<Record<string, unknown>>;

/**
 * The headers with the trace of the active OpenTelemetry span, if there is one: it joins what the consumer does to the
 * business transaction. A `traceparent` or `tracestate` of the event's own stays alone.
 */
export function withTrace(headers: Headers): Headers {
  const context = trace.getActiveSpan()?.spanContext();
  if (context === undefined || !isSpanContextValid(context)) return headers;
  if (HEADER.traceparent in headers || TRACESTATE in headers) return headers;
  const flags = (context.traceFlags & 0xff).toString(16).padStart(2, '0');
  const traceparent = `00-${context.traceId}-${context.spanId}-${flags}`;
  const state = context.traceState?.serialize() ?? '';
  const fits =
    state !== '' &&
    Buffer.byteLength(state) <= MAX_TRACESTATE_BYTES &&
    Object.keys(headers).length < MAX_HEADERS;
  return { ...headers, [HEADER.traceparent]: traceparent, ...(fits && { [TRACESTATE]: state }) };
}
