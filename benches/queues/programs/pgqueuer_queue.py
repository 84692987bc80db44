"""PgQueuer: PostgreSQL. Its worker asks for the next deferred job itself. Durable: each accept is a commit."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job as PgJob
from pgqueuer.queries import Queries

from .common import TEXT, Job, Ran, Request, main

BATCH = 100
"""Jobs that a worker takes at once: its benchmark's default is 125, the function's is 10."""


class Queue:
    """A pool for those who hand in, a connection for the worker."""

    async def open(self, request: Request) -> None:
        self._url = request.postgres
        self._pool = await asyncpg.create_pool(request.postgres, min_size=request.clients, max_size=request.clients)
        self._queries = Queries(AsyncpgPoolDriver(self._pool))
        self._worker: asyncio.Task[None] | None = None
        await self._queries.install()

    async def put(self, jobs: list[Job]) -> None:
        now = datetime.now(UTC).timestamp() * 1000
        after = [timedelta(milliseconds=due_ms - now) for _, due_ms in jobs]
        payloads: list[bytes | None] = [f"{number} {TEXT}".encode() for number, _ in jobs]
        await self._queries.enqueue(["job"] * len(jobs), payloads, [0] * len(jobs), after)

    async def work(self, ran: Ran) -> None:
        queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(self._url)))

        @queuer.entrypoint("job")
        async def job(job: PgJob) -> None:
            assert job.payload is not None
            ran(int(job.payload.split()[0]))

        self._worker = asyncio.create_task(queuer.qm.run(batch_size=BATCH))

    async def close(self) -> None:
        if self._worker:
            self._worker.cancel()
            with suppress(asyncio.CancelledError):
                await self._worker
        await self._pool.close()


if __name__ == "__main__":
    main(Queue())
