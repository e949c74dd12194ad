import type { Letter } from './letter.js';

/** Which letters a command means. What is not given does not narrow. */
export interface LetterFilter {
  /** Message ids, exact. */
  readonly ids?: readonly string[];
  /** Their own names: `Letter.letter`. */
  readonly letters?: readonly string[];
  /** Exact, or with `*` for any characters. */
  readonly type?: string;
  /** A reason's code. */
  readonly cause?: string;
  /** Both ends count, in milliseconds since 1970. A letter without a time is in no window. */
  readonly fromMs?: number;
  readonly toMs?: number;
}

export function isMeant(
  { ids, letters, type, cause, fromMs, toMs }: LetterFilter,
  { letter, id, type: own, reason, diedAtMs }: Pick<Letter, 'letter' | 'id' | 'type' | 'reason' | 'diedAtMs'>,
): boolean {
  if (ids !== undefined && (id === undefined || !ids.includes(id))) return false;
  if (letters !== undefined && !letters.includes(letter)) return false;
  if (type !== undefined && !patternOf(type).test(own)) return false;
  if (cause !== undefined && cause !== reason) return false;
  if (fromMs !== undefined && (diedAtMs === undefined || diedAtMs < fromMs)) return false;
  return toMs === undefined || (diedAtMs !== undefined && diedAtMs <= toMs);
}

/** `*` is any characters, everything else itself. */
function patternOf(type: string): RegExp {
  const parts = type.split('*').map((part) => part.replace(/[.+?^${}()|[\]\\]/g, '\\$&'));
  return new RegExp(`^${parts.join('[^]*')}$`, 'u');
}
