import { isAbsolute, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ConfigurationError, describe } from '../runtime/errors.js';
import { isProcessor, type Processor } from './define.js';

/** `notify: () => import('./notify.js')`: the name is known even when the file cannot be loaded. */
export type ProcessorLoaders = Readonly<Record<string, () => Promise<object>>>;

export interface CatalogEntry {
  readonly name: string;
  /** @throws what importing the file throws, or a TypeError when it exports no actor of this name */
  load(): Promise<Processor>;
}

/**
 * The actors of this service, in the order of their list.
 * @param modulePath TWINBOX_PROCESSORS; default: the package's own `src/processors/index`
 * @throws {ConfigurationError} when the list cannot be loaded or is no list
 */
export async function openCatalog(modulePath: string | undefined): Promise<CatalogEntry[]> {
  // Found at run time and not by an import: the package must not depend on the actors it is given.
  const url =
    modulePath === undefined
      ? new URL('../processors/index.js', import.meta.url)
      : pathToFileURL(isAbsolute(modulePath) ? modulePath : resolve(modulePath));
  let list: unknown;
  try {
    list = ((await import(url.href)) as { processors?: unknown }).processors;
  } catch (error) {
    throw new ConfigurationError(
      `the list of actors cannot be loaded from ${url.pathname}: ${describe(error)}; set TWINBOX_PROCESSORS to a module that exports \`processors\``,
      { cause: error },
    );
  }
  if (typeof list !== 'object' || list === null) {
    throw new ConfigurationError(
      `${url.pathname} exports no \`processors\`; it must look like: export const processors = { notify: () => import('./notify.js') }`,
    );
  }
  return entriesOf(list as ProcessorLoaders);
}

/** One entry a name of the list. */
export function entriesOf(loaders: ProcessorLoaders): CatalogEntry[] {
  return Object.entries(loaders).map(([name, importFile]) => ({
    name,
    load: async () => {
      const exported: unknown[] = Object.values(await importFile());
      const found = exported.find((value) => isProcessor(value) && value.name === name);
      if (!isProcessor(found))
        throw new TypeError(
          `the file of actor ${name} exports no processor of that name: export const ${name} = defineProcessor({ name: '${name}', … })`,
        );
      return found;
    },
  }));
}

/**
 * The entry of one actor.
 * @throws {ConfigurationError} naming the actors there are
 */
export function entryOf(catalog: readonly CatalogEntry[], name: string): CatalogEntry {
  const entry = catalog.find((candidate) => candidate.name === name);
  if (entry === undefined) {
    throw new ConfigurationError(
      `there is no actor ${JSON.stringify(name)}; known: ${catalog.map((one) => one.name).join(', ') || 'none'}`,
    );
  }
  return entry;
}
