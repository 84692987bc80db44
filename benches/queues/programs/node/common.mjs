// What the programs for Node share. ../common.py says what they do.

import { existsSync, writeFileSync } from "node:fs";

const TOO_LATE = 75;
const SPARE_MS = 3_000;
const TAIL_MS = 10_000;
const OVERDUE_WITHIN_MS = 60_000;
const HOUR_MS = 3_600_000;
export const TEXT = "x".repeat(80);

const sleep = (ms) => new Promise((done) => setTimeout(done, Math.max(0, ms)));
const nowUs = () => Math.floor((performance.timeOrigin + performance.now()) * 1000);

// side: open(request), put(jobs), work(ran), close(). A job is [number, dueMs].
export async function main(side) {
  const request = JSON.parse(process.argv[2]);
  await side.open(request);
  if (request.do === "accept") {
    const hourMs = Date.now() + HOUR_MS;
    const jobs = Array.from({ length: request.count }, (_, n) => [n, hourMs + n]);
    const began = performance.now();
    await putAll(side, jobs, request);
    console.log(JSON.stringify({ took_s: (performance.now() - began) / 1000 }));
  } else {
    await run(side, request);
  }
  await side.close();
  process.exit(0);
}

async function run(side, request) {
  const firstMs = Date.now() + Math.round(request.lead_s * 1000);
  const due = (n) => firstMs + Math.floor((n * 1000) / request.rate);
  const jobs = Array.from({ length: request.count }, (_, n) => [n, due(n)]);
  await putAll(side, jobs, request);
  if (Date.now() + SPARE_MS > firstMs) {
    console.error(`all were handed in ${Date.now() + SPARE_MS - firstMs} ms too late`);
    process.exit(TOO_LATE);
  }
  const lastMs = due(request.count - 1);
  if (request.do === "overdue") await sleep(lastMs + 100 - Date.now());
  const numbers = [];
  const atUs = [];
  const beganUs = nowUs();
  await side.work((number) => {
    numbers.push(number);
    atUs.push(nowUs());
  });
  const endMs = request.do === "overdue" ? Date.now() + OVERDUE_WITHIN_MS : lastMs + TAIL_MS;
  while (numbers.length < request.count && Date.now() < endMs) await sleep(100);
  if (existsSync(request.out)) throw new Error(`${request.out} exists`);
  writeFileSync(request.out, numbers.map((number, at) => `${number} ${atUs[at]}\n`).join(""));
  console.log(JSON.stringify({ first_ms: firstMs, began_us: beganUs }));
}

async function putAll(side, jobs, { batch, clients }) {
  const batches = [];
  for (let at = 0; at < jobs.length; at += batch) batches.push(jobs.slice(at, at + batch));
  const client = async (first) => {
    for (let at = first; at < batches.length; at += clients) await side.put(batches[at]);
  };
  await Promise.all(Array.from({ length: clients }, (_, first) => client(first)));
}
