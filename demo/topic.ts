/** Whether a topic exchange delivers `routingKey` to a queue bound with `pattern` (`*` one word, `#` any number). */
export function topicMatches(pattern: string, routingKey: string): boolean {
  return wordsMatch(pattern.split('.'), routingKey.split('.'));
}

function wordsMatch(pattern: readonly string[], words: readonly string[]): boolean {
  const [first, ...rest] = pattern;
  if (first === undefined) return words.length === 0;
  if (first === '#')
    return wordsMatch(rest, words) || (words.length > 0 && wordsMatch(pattern, words.slice(1)));
  return words.length > 0 && (first === '*' || first === words[0]) && wordsMatch(rest, words.slice(1));
}
