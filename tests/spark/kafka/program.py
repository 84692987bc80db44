"""The program for clusters on a topic, with a deliverer that writes to a file; both on this machine."""

import sys
from pathlib import Path

from ..cluster import Cluster, Process
from .broker import Broker
from .jars import jars_of

TICKWHEEL = [sys.executable, "-m", "tickwheel.cli"]


def start(processes: Cluster, broker: Broker, topic: str, *options: str, **conf: str) -> tuple[Process, Path]:
    """The driver, and the file that messages come to. `conf`: of Spark, with `_` for a dot."""
    at, out = serve(processes)
    return drive(processes, at, broker, topic, *options, **conf), out


def serve(processes: Cluster) -> tuple[str, Path]:
    """A deliverer's address, and the file that messages come to."""
    port = ["--listen", "127.0.0.1:0"]
    made = processes.run([*TICKWHEEL, "serve", "--store", "s.db", "--to", "file:out", *port], name="serve")
    return made.found(r"http://(127\.0\.0\.1:\d+)")[1], made.log.parent / "out"


def drive(
    processes: Cluster, at: str, broker: Broker, topic: str, *options: str, name: str = "driver", **conf: str
) -> Process:
    """The driver, for a deliverer that runs."""
    jars = ",".join(map(str, sorted(jars_of("connector").glob("*.jar"))))
    settings = processes.settings | {"spark.sql.shuffle.partitions": "2"}
    settings |= {name.replace("_", "."): value for name, value in conf.items()}
    return processes.run(
        [*TICKWHEEL, "spark-submit", "--master", "local[2]", "--jars", jars,
         *(part for it in settings.items() for part in ("--conf", "=".join(it))),
         "--", f"kafka://{broker.address}/{topic}", "--deliverer", at, "--checkpoint", "checkpoint", *options],
        name=name,
    )  # fmt: skip
