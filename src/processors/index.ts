import type { ProcessorLoaders } from '../actor/index.js';

/** The actors of this service. One file, one line here, one line in Procfile. */
export const processors: ProcessorLoaders = {
  notify: () => import('./notify.js'),
  stats: () => import('./stats.js'),
};
