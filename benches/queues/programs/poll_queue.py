"""A plain table in PostgreSQL that is asked every so many milliseconds: `python -m ...poll_queue REQUEST EVERY_MS`.

The worker takes what is due, at most 1,000 at once and the earliest first, runs it and deletes it, in one transaction.
Durable: each accept is a commit.
"""

import asyncio
import json
import sys
from contextlib import suppress

import asyncpg

from .common import TEXT, Job, Ran, Request, main

TABLE = "CREATE TABLE jobs (id bigint PRIMARY KEY, due_ms bigint NOT NULL, payload text NOT NULL)"
INDEX = "CREATE INDEX jobs_due ON jobs (due_ms)"
PUT = "INSERT INTO jobs SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[])"
TAKE = """
    SELECT id FROM jobs WHERE due_ms <= extract(epoch FROM clock_timestamp()) * 1000
    ORDER BY due_ms LIMIT 1000 FOR UPDATE SKIP LOCKED
"""
DELETE = "DELETE FROM jobs WHERE id = ANY($1::bigint[])"


class Poll:
    """A pool for those who hand in, a connection for the worker."""

    def __init__(self, every_ms: int) -> None:
        self._every_s = every_ms / 1000
        self._worker: asyncio.Task[None] | None = None

    async def open(self, request: Request) -> None:
        self._pool = await asyncpg.create_pool(request.postgres, min_size=request.clients, max_size=request.clients + 1)
        await self._pool.execute(f"{TABLE}; {INDEX}")

    async def put(self, jobs: list[Job]) -> None:
        numbers, due_ms = zip(*jobs, strict=True)
        await self._pool.execute(PUT, numbers, due_ms, [json.dumps({"text": TEXT})] * len(jobs))

    async def work(self, ran: Ran) -> None:
        self._worker = asyncio.create_task(self._ask(ran))

    async def _ask(self, ran: Ran) -> None:
        async with self._pool.acquire() as connection:
            while True:
                async with connection.transaction():
                    rows = await connection.fetch(TAKE)
                    for row in rows:
                        ran(row["id"])
                    if rows:
                        await connection.execute(DELETE, [row["id"] for row in rows])
                if len(rows) < 1000:
                    await asyncio.sleep(self._every_s)

    async def close(self) -> None:
        if self._worker:
            self._worker.cancel()
            with suppress(asyncio.CancelledError):
                await self._worker
        await self._pool.close()


if __name__ == "__main__":
    main(Poll(int(sys.argv[2])))
