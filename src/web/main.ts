import { runProcess } from '../runtime/process.js';
import { web } from './service.js';

await runProcess(web);
