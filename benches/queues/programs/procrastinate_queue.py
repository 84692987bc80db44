"""Procrastinate: PostgreSQL. Its worker asks for scheduled jobs at an interval. Durable: each accept is a commit."""

import asyncio
import logging
from contextlib import suppress
from datetime import UTC, datetime

from procrastinate import App, PsycopgConnector

from .common import TEXT, Job, Ran, Request, main

CONCURRENCY = 30
EVERY_S = 0.1
"""Its default of 5 s is for workers that are woken by new jobs; nothing wakes them for a job that gets due."""


class Procrastinate:
    """One app, whose worker runs in the same loop."""

    async def open(self, request: Request) -> None:
        logging.disable()
        connector = PsycopgConnector(conninfo=request.postgres, max_size=request.clients + 4)
        self._app = App(connector=connector)
        self._ran: Ran = lambda _: None
        self._worker: asyncio.Task[None] | None = None

        @self._app.task(name="job")
        async def job(number: int, text: str) -> None:
            self._ran(number)

        await self._app.open_async()
        await self._app.schema_manager.apply_schema_async()

    async def put(self, jobs: list[Job]) -> None:
        made = []
        for number, due_ms in jobs:
            at = datetime.fromtimestamp(due_ms / 1000, UTC)
            made.append(self._app.configure_task("job", schedule_at=at).make_new_job(number=number, text=TEXT))
        if len(made) == 1:
            await self._app.job_manager.defer_job_async(made[0])
        else:
            await self._app.job_manager.batch_defer_jobs_async(made)

    async def work(self, ran: Ran) -> None:
        self._ran = ran
        self._worker = asyncio.create_task(
            self._app.run_worker_async(
                concurrency=CONCURRENCY,
                fetch_job_polling_interval=EVERY_S,
                install_signal_handlers=False,
                delete_jobs="always",
            )
        )

    async def close(self) -> None:
        if self._worker:
            self._worker.cancel()
            with suppress(asyncio.CancelledError):
                await self._worker
        await self._app.close_async()


if __name__ == "__main__":
    main(Procrastinate())
