import { runProcess } from '../runtime/process.js';
import { sweeper } from './service.js';

await runProcess(sweeper);
