"""APScheduler 3 with its store in PostgreSQL: one date job for each. Durable: each accept is a commit."""

import logging
from datetime import UTC, datetime

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler

from .common import TEXT, Job, Ran, Request, main

THREADS = 20

_ran: list[Ran] = []


def job(number: int, text: str) -> None:
    """The store keeps its name."""
    _ran[0](number)


class Scheduler:
    """It has no call for many jobs. While paused it accepts into the store and runs nothing."""

    def open(self, request: Request) -> None:
        logging.disable()
        url = request.postgres.replace("postgresql://", "postgresql+psycopg://")
        self._scheduler = BackgroundScheduler(
            jobstores={"default": SQLAlchemyJobStore(url, engine_options={"pool_size": request.clients + 2})},
            executors={"default": ThreadPoolExecutor(THREADS)},
            job_defaults={"misfire_grace_time": None, "max_instances": 1},
            timezone=UTC,
        )
        self._scheduler.start(paused=True)

    def put(self, jobs: list[Job]) -> None:
        for number, due_ms in jobs:
            at = datetime.fromtimestamp(due_ms / 1000, UTC)
            self._scheduler.add_job(f"{__spec__.name}:job", "date", run_date=at, args=(number, TEXT), id=f"{number}")

    def work(self, ran: Ran) -> None:
        from . import apscheduler_queue as named  # the store imports it by this name

        named._ran.append(ran)
        self._scheduler.resume()

    def close(self) -> None:
        self._scheduler.shutdown(wait=False)


if __name__ == "__main__":
    main(Scheduler())
