import { openStack } from '../../stack/index.js';

/** Starts a stack that ends with this process, says so, and stays. Arguments: root, name. */
const [root = '', name = ''] = process.argv.slice(2);
const stack = openStack({ root, name, attached: true });
const urls = await stack.start();
process.stdout.write(`${JSON.stringify(urls)}\n`);
setInterval(() => undefined, 60_000);
