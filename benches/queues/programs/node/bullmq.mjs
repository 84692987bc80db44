// BullMQ: Redis. How durable it is says Redis' appendfsync. A worker waits for the next delayed job by itself.

import { Queue, Worker } from "bullmq";
import { main, TEXT } from "./common.mjs";

const CONCURRENCY = 100;
let queue, worker, connection;

await main({
  async open({ redis }) {
    connection = { host: "127.0.0.1", port: redis, maxRetriesPerRequest: null };
    queue = new Queue("jobs", { connection });
    await queue.waitUntilReady();
  },
  async put(jobs) {
    const timestamp = Date.now();
    const options = (dueMs) => ({ timestamp, delay: Math.max(0, dueMs - timestamp), removeOnComplete: true });
    if (jobs.length === 1) {
      const [[number, dueMs]] = jobs;
      await queue.add("job", { number, text: TEXT }, options(dueMs));
    } else {
      await queue.addBulk(
        jobs.map(([number, dueMs]) => ({ name: "job", data: { number, text: TEXT }, opts: options(dueMs) })),
      );
    }
  },
  async work(ran) {
    worker = new Worker("jobs", async ({ data }) => ran(data.number), { connection, concurrency: CONCURRENCY });
    worker.on("error", (error) => console.error(error));
    await worker.waitUntilReady();
  },
  async close() {
    await worker?.close(true);
    await queue.close();
  },
});
