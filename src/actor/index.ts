export { entriesOf, entryOf, openCatalog, type CatalogEntry, type ProcessorLoaders } from './catalog.js';
export {
  defineProcessor,
  isProcessor,
  type Closable,
  type EffectContext,
  type EffectLog,
  type Processor,
  type ProcessorDefinition,
  type StepResult,
} from './define.js';
