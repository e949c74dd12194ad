import { runProcess } from '../runtime/process.js';
import { ingest } from './service.js';

await runProcess(ingest);
