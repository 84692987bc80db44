// pg-boss: PostgreSQL. Durable: each accept is a commit. Half a second is the shortest interval that it takes; while a
// batch comes back full, it asks again at once.

import { PgBoss } from "pg-boss";
import { main, TEXT } from "./common.mjs";

const POLL_S = 0.5;
const BATCH = 1_000;
let boss;

await main({
  async open({ postgres, clients }) {
    boss = new PgBoss({ connectionString: postgres, max: clients + 4 });
    boss.on("error", (error) => console.error(error));
    await boss.start();
    await boss.createQueue("jobs");
  },
  async put(jobs) {
    if (jobs.length === 1) {
      const [[number, dueMs]] = jobs;
      await boss.send("jobs", { number, text: TEXT }, { startAfter: new Date(dueMs) });
    } else {
      const made = jobs.map(([number, dueMs]) => ({ data: { number, text: TEXT }, startAfter: new Date(dueMs) }));
      await boss.insert("jobs", made);
    }
  },
  async work(ran) {
    const options = { batchSize: BATCH, pollingIntervalSeconds: POLL_S, burstWhenBatchFull: true };
    await boss.work("jobs", options, async (jobs) => {
      for (const { data } of jobs) ran(data.number);
    });
  },
  async close() {
    await boss.stop({ graceful: false });
  },
});
