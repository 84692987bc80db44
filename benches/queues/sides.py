"""The queues that are compared, what each needs, and how many jobs it is given."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from .servers import Sync, missing

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
FOLDER: Final = ROOT / "build/bench-queues"
"""What is built or fetched for other languages."""

TICKWHEEL: Final = "tickwheel"


@dataclass(frozen=True)
class Side:
    """A queue. `puts_per_s`: a cautious rate at which it accepts, to know when its first job can be due."""

    name: str
    language: Literal["Python", "Node", "Go"]
    program: str
    server: Literal["", "postgresql", "redis"]
    puts_per_s: int
    package: str = ""
    most_rate: int = 20_000
    """At higher rates it is not measured: at this one it is many seconds late, or can't be filled in a minute."""
    sync: Sync = "everysec"
    arguments: tuple[str, ...] = ()
    batch: int = 1_000
    clients: int = 4

    @property
    def command(self) -> list[str]:
        """Its program, without the request."""
        if self.language == "Python":
            return [sys.executable, "-m", f"benches.queues.programs.{self.program}"]
        if self.language == "Go":
            return [str(FOLDER / self.program)]
        return [str(FOLDER / "node/node_modules/.bin/node"), str(FOLDER / f"node/{self.program}.mjs")]

    @property
    def missing(self) -> str:
        """What this machine lacks for it; empty if nothing."""
        tools = {"Python": "", "Node": "npm", "Go": "go"}[self.language]
        absent = tools if tools and shutil.which(tools) is None else ""
        return absent or (missing(self.server) if self.server else "")


SIDES: Final = (
    Side(TICKWHEEL, "Python", "tickwheel_queue", "", 50_000, "tickwheel"),
    Side("plain poll, 5 ms", "Python", "poll_queue", "postgresql", 50_000, "asyncpg", arguments=("5",)),
    Side("plain poll, 100 ms", "Python", "poll_queue", "postgresql", 50_000, "asyncpg", arguments=("100",)),
    Side("Graphile Worker", "Node", "graphile", "postgresql", 15_000),
    Side("River", "Go", "river", "postgresql", 15_000),
    Side("BullMQ, everysec", "Node", "bullmq", "redis", 4_000),
    Side("BullMQ, always", "Node", "bullmq", "redis", 4_000, sync="always"),
    Side("pg-boss", "Node", "pgboss", "postgresql", 10_000),
    Side("PgQueuer", "Python", "pgqueuer_queue", "postgresql", 10_000, "pgqueuer"),
    Side("DBOS", "Python", "dbos_queue", "postgresql", 300, "dbos", most_rate=2_000),
    Side("Celery", "Python", "celery_queue", "redis", 600, "celery", most_rate=2_000),
    Side("Procrastinate", "Python", "procrastinate_queue", "postgresql", 3_000, "procrastinate", most_rate=500),
    Side("APScheduler", "Python", "apscheduler_queue", "postgresql", 200, "APScheduler", most_rate=500),
)

BY_NAME: Final = {side.name: side for side in SIDES}
