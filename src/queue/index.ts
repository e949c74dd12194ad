export { generationOf, jobId, type JobData, type Ticket } from './job.js';
export { openQueues, type JobSight, type QueueCounts, type Queues, type QueuesOptions } from './queues.js';
export { openWorker, type Disposition, type JobWorker, type WorkerOptions, type WorkItem } from './worker.js';
