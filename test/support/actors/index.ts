/** The actors of the tests: two subscribers of the same event, and one whose file may refuse to load. */
export const processors = {
  receipt: () => import('./receipt.js'),
  ledger: () => import('./ledger.js'),
  fragile: () => import('./fragile.js'),
};
