"""Celery with Redis: its worker takes jobs at once, and keeps them in memory until their ETA.

Not durable in the same sense: Redis holds what a worker has not acknowledged, synced to the disk once a second.
"""

import os
import subprocess
import sys
import time
from datetime import UTC, datetime

from celery import Celery

from .common import TEXT, Job, Ran, Request, main

PRECISION_S = 0.1
"""Its default is 1 s; for nearly a millisecond its manual gives this value."""

app = Celery("queue", broker=os.environ.get("QUEUE_BROKER", ""))
app.conf.task_ignore_result = True
app.conf.worker_timer_precision = PRECISION_S
app.conf.broker_transport_options = {"visibility_timeout": 7_200}  # longer than any ETA, as its manual asks


@app.task(name="job")
def job(number: int, text: str) -> None:
    """Runs in a process of the worker, so it writes the line itself."""
    os.write(out(), f"{number} {time.time_ns() // 1000}\n".encode())


def out() -> int:
    """The file, opened once in each process."""
    if not _opened:
        _opened.append(os.open(os.environ["QUEUE_OUT"], os.O_WRONLY | os.O_APPEND | os.O_CREAT))
    return _opened[0]


_opened: list[int] = []


class Queue:
    """It has no call for many jobs. The worker is another process, with a process for each processor."""

    def open(self, request: Request) -> None:
        broker = f"redis://127.0.0.1:{request.redis}/0"
        os.environ |= {"QUEUE_BROKER": broker, "QUEUE_OUT": request.out}
        app.conf.broker_url = broker
        self._worker: subprocess.Popen[bytes] | None = None

    def put(self, jobs: list[Job]) -> None:
        for number, due_ms in jobs:
            job.apply_async((number, TEXT), eta=datetime.fromtimestamp(due_ms / 1000, UTC))

    def work(self, _: Ran) -> None:
        command = [sys.executable, "-m", "celery", "-A", __spec__.name, "worker", "--loglevel", "ERROR"]
        quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
        self._worker = subprocess.Popen([*command, *quiet], stdout=sys.stderr)

    def close(self) -> None:
        if self._worker:
            self._worker.terminate()
            self._worker.wait(60)


if __name__ == "__main__":
    main(Queue())
