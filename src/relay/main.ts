import { runProcess } from '../runtime/process.js';
import { relay } from './service.js';

await runProcess(relay);
