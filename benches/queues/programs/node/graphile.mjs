// Graphile Worker: PostgreSQL. Durable: each accept is a commit. The settings are those of its page on performance; its
// poll interval of 2 s is for workers that are woken by new jobs, and nothing wakes them for a job that gets due.

import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";
import { main, TEXT } from "./common.mjs";

const POLL_MS = 100;
const logger = new Logger(() => () => {});
let pool, utils, runner;

const worker = {
  concurrentJobs: 24,
  maxPoolSize: 25,
  pollInterval: POLL_MS,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};

await main({
  async open({ postgres, clients }) {
    pool = new pg.Pool({ connectionString: postgres, max: Math.max(clients, worker.maxPoolSize) });
    pool.on("error", console.error);
    pool.on("connect", (client) => client.on("error", console.error));
    utils = await makeWorkerUtils({ pgPool: pool, logger });
    await utils.migrate();
  },
  async put(jobs) {
    const payload = ([number]) => ({ number, text: TEXT });
    if (jobs.length === 1) {
      await utils.addJob("job", payload(jobs[0]), { runAt: new Date(jobs[0][1]) });
    } else {
      await utils.addJobs(jobs.map((job) => ({ identifier: "job", payload: payload(job), runAt: new Date(job[1]) })));
    }
  },
  async work(ran) {
    runner = await run({
      pgPool: pool,
      logger,
      noHandleSignals: true,
      preset: { worker },
      taskList: { job: async ({ number }) => ran(number) },
    });
  },
  async close() {
    await runner?.stop();
    await utils.release();
  },
});
