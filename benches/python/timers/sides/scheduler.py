"""APScheduler 3: a `BackgroundScheduler` with its defaults, and a job with a date for each timer.

By default a job that cannot run within a second of its date is skipped. Here it runs anyway, so that none is lost. A
callback must have a module, because a job is identified by the name of its function.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from apscheduler.job import Job
from apscheduler.schedulers.background import BackgroundScheduler

from ..side import Side


def background() -> Side:
    scheduler = BackgroundScheduler(timezone=UTC, job_defaults={"misfire_grace_time": None})
    scheduler.start()

    def add(delay_s: float, callback: Callable[..., object], *args: object) -> object:
        date = datetime.now(UTC) + timedelta(seconds=delay_s)
        return scheduler.add_job(callback, "date", args, run_date=date)

    def at(due_s: float, callback: Callable[..., object], *args: object) -> object:
        return scheduler.add_job(callback, "date", args, run_date=datetime.fromtimestamp(due_s, UTC))

    return Side(add=add, cancel=Job.remove, at=at, clock=time.time, wants_functions=True)
