"""The program for clusters on a topic, with a deliverer that writes to a file; both on this machine."""

import sys
from pathlib import Path

from ..cluster import Cluster, Process
from .broker import Broker
from .jars import jars_of


def start(processes: Cluster, broker: Broker, topic: str, *options: str, **conf: str) -> tuple[Process, Path]:
    """The driver, and the file that messages come to. `conf`: of Spark, with `_` for a dot."""
    tickwheel = [sys.executable, "-m", "tickwheel.cli"]
    port = ["--listen", "127.0.0.1:0"]
    serve = processes.run([*tickwheel, "serve", "--store", "s.db", "--to", "file:out", *port], name="serve")
    at = serve.found(r"http://(127\.0\.0\.1:\d+)")[1]
    jars = ",".join(map(str, sorted(jars_of("connector").glob("*.jar"))))
    settings = processes.settings | {"spark.sql.shuffle.partitions": "2"}
    settings |= {name.replace("_", "."): value for name, value in conf.items()}
    driver = processes.run(
        [*tickwheel, "spark-submit", "--master", "local[2]", "--jars", jars,
         *(part for it in settings.items() for part in ("--conf", "=".join(it))),
         "--", f"kafka://{broker.address}/{topic}", "--deliverer", at, "--checkpoint", "checkpoint", *options],
        name="driver",
    )  # fmt: skip
    return driver, serve.log.parent / "out"
