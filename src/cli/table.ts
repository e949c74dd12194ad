/** Aligned columns, two spaces between; nothing is cut. */
export function table(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [header, ...rows].map((row) => row.map(plain));
  const widths = header.map((_, column) => Math.max(...lines.map((row) => lengthOf(row[column] ?? ''))));
  return lines
    .map((row) =>
      row
        .map((cell, column) => pad(cell, widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .map((line) => `${line}\n`)
    .join('');
}

function pad(cell: string, width: number): string {
  return cell + ' '.repeat(Math.max(0, width - lengthOf(cell)));
}

function lengthOf(text: string): number {
  return Array.from(text).length;
}

/** One line without control characters: what a producer wrote must not steer the terminal that shows it. */
export function plain(text: string): string {
  // eslint-disable-next-line no-control-regex -- they are what this is about
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g, (character) => {
    return `\\u${(character.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`;
  });
}

/** At most `length` characters, with a sign that there were more. */
export function shortened(text: string, length: number): string {
  const characters = Array.from(text);
  return characters.length <= length ? text : `${characters.slice(0, length - 1).join('')}…`;
}

/** A span for people: `4 s`, `3 min`, `2 h`, `9 d`. */
export function span(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3_600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}

/** `1 row`, `2 rows`. */
export function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}
