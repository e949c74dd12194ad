/** The list with one actor: a kill at a probe point is then about its message alone. */
export const processors = { receipt: () => import('./receipt.js') };
