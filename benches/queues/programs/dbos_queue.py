"""DBOS: workflows in a queue with a delay, in PostgreSQL. Durable: each accept is a commit."""

import time
from typing import Any

from dbos import DBOS, DBOSConfig, SetEnqueueOptions

from .common import TEXT, Job, Ran, Request, main

EVERY_S = 0.1
"""Its default is 1 s."""

_ran: list[Ran] = []


@DBOS.workflow()
def job(number: int, text: str) -> None:
    if _ran:
        _ran[0](number)


class Queue:
    """It has no call for many jobs. It listens to the queue of the jobs only to work, when it is launched again."""

    def open(self, request: Request) -> None:
        url = request.postgres.replace("postgresql://", "postgresql+psycopg://")
        self._config: DBOSConfig = {
            "name": "queue", "system_database_url": url, "log_level": "ERROR", "sys_db_pool_size": request.clients + 4,
            "application_version": "1", "enable_otlp": False,
        }  # fmt: skip
        self._launch(["none"])

    def _launch(self, listens: list[str]) -> None:
        DBOS(config=self._config)
        DBOS.listen_queues(listens)
        DBOS.launch()
        options: dict[str, Any] = {"polling_interval_sec": EVERY_S, "on_conflict": "always_update"}
        DBOS.register_queue("jobs", **options)

    def put(self, jobs: list[Job]) -> None:
        for number, due_ms in jobs:
            with SetEnqueueOptions(delay_seconds=max(0, due_ms / 1000 - time.time())):
                DBOS.enqueue_workflow("jobs", job, number, TEXT)

    def work(self, ran: Ran) -> None:
        _ran.append(ran)
        DBOS.destroy()
        self._launch(["jobs"])

    def close(self) -> None:
        DBOS.destroy(workflow_completion_timeout_sec=0)


if __name__ == "__main__":
    main(Queue())
