"""The Spark session: that of `spark-submit`, or one with settings that fit a laptop (rules S1, S2).

SIGTERM and SIGINT are for this process, also if the JVM beside it gets them (D13). A JVM that gets one ends at once,
in the middle of a micro-batch, and the driver then fails with a page of errors. Under `spark-submit` the JVM is the
process that a user or Kubernetes knows, and it starts this one; else it is a child.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from tickwheel.delivery.base.errors import WrongUsage

JAVA: Final = 17

HOLD_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A micro-batch writes what it changed, not the whole state.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
"""The settings that the hold needs wherever it runs."""

_LAPTOP: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.shuffle.partitions": "2",  # one for each core; the state keeps the number of the first run
    # The large stack is for a regular expression that Spark runs on an error's text when a query is stopped. The code
    # cache is as large as with both compilers: with C1 alone it is full after minutes, and then compiling ends.
    "spark.driver.extraJavaOptions": (
        "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -Xss4m "
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    ),
    "spark.sql.session.timeZone": "UTC",
}
_ON_LAPTOP: Final = "local[2,4]"
"""Two cores, and four attempts of each task, because a worker may be killed; the default in local mode is one."""
_STATE_PARTITIONS: Final = "8"
"""How many cores can hold state; Spark's own default of 200 tasks takes seconds for each micro-batch."""
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_NOISE: Final = (
    b"WARNING: Using incubator modules",
    b"Setting default log level to",
    b"To adjust logging level use",
    b"Starting Streaming TransformWithState",
    b"Streaming TransformWithState",
)


def spark_session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session that there is, or that `spark-submit` asks for, and without either a `laptop_session`; in each of
    them `HOLD_SETTINGS` are in force. `settings` override those of `spark-submit`, but not the hold's own.

    Errors: those of `laptop_session`. Takes some seconds.
    """
    if given_master() is None:
        return laptop_session(settings=settings)
    wanted = {**(settings or {}), **HOLD_SETTINGS}
    if not SparkConf().contains(_PARTITIONS):
        wanted.setdefault(_PARTITIONS, _STATE_PARTITIONS)
    builder = SparkSession.builder
    for key, value in wanted.items():
        builder = builder.config(key, value)
    return _made(builder)


def given_master() -> str | None:
    """The master that a session, `spark-submit` or `PYSPARK_SUBMIT_ARGS` has set; `None` if nothing has."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized()  # this process was started by spark-submit, whose settings are in the JVM
        return str(SparkConf().get("spark.master", "local[*]"))
    if SparkContext._active_spark_context is not None:
        return str(SparkContext._active_spark_context.master)
    words = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    for word, after in pairwise([*words, ""]):
        if word == "--master":
            return after
        if word.startswith("--master="):
            return word.partition("=")[2]
        if word == "--conf" and after.startswith("spark.master="):
            return after.partition("=")[2]
    return None


def laptop_session(
    name: str = "tickwheel", settings: Mapping[str, str] | None = None, *, spare_cores: int = 0
) -> SparkSession:
    """A session in this process and a JVM beside it, on two cores. `settings` override all others.

    `spare_cores`: how many of the machine's cores the JVM and its workers do not use; they keep at least one. It is for
    a deliverer on the same machine, which is late when it waits for a core. Errors: `WrongUsage` if Java 17 is not
    found, or another master is set. Takes some seconds.
    """
    master = given_master()
    if master not in (None, _ON_LAPTOP):
        raise WrongUsage(
            f"laptop_session runs Spark on this machine alone ({_ON_LAPTOP}), and the master that is set is {master}: "
            "call spark_session() instead, which uses that master, or start the program without spark-submit"
        )
    need_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(name).master(_ON_LAPTOP)
    for key, value in {**_LAPTOP, **HOLD_SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    with _on_fewer_cores(spare_cores), quiet_start():
        return _made(builder)


def _made(builder: SparkSession.Builder) -> SparkSession:
    """Makes the session in another thread, so a program's own handler of SIGINT stays. In the main thread PySpark sets
    a handler of its own. That handler cancels all jobs, also in a micro-batch, and fails during a call to the JVM.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(builder.getOrCreate).result()


@contextmanager
def _on_fewer_cores(spare: int) -> Iterator[None]:
    """Processes that this thread starts meanwhile do not use the first `spare` cores, if the system can do that."""
    if sys.platform != "linux":
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[spare:] or cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def need_java() -> None:
    """Errors: `WrongUsage` if there is no Java, or a version that Spark can't use."""
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else Path("java")
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr  # noqa: S603
    except (OSError, subprocess.CalledProcessError) as error:
        raise WrongUsage(
            f"Java {JAVA} is needed for Spark, and {java} can't be run: install it, or set JAVA_HOME"
        ) from error
    found = re.search(r'version "(\d+)', output)
    if found is None or int(found[1]) < JAVA:
        first = output.splitlines()[0] if output else "an unknown version"
        raise WrongUsage(f"Java {JAVA} is needed for Spark, and {java} is {first}: install it, or set JAVA_HOME")


@contextmanager
def quiet_start() -> Iterator[None]:
    """A JVM started meanwhile, and its child processes, have a standard error without these lines."""
    sys.stderr.flush()
    read, write = os.pipe()
    before = os.dup(2)
    threading.Thread(target=_filter, args=(read, os.dup(2)), name="quiet-start", daemon=True).start()
    os.dup2(write, 2)
    os.close(write)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)


def _filter(read: int, out: int) -> None:
    """Pass lines on until all who write them have ended. An empty line behind one that is dropped is too."""
    with open(read, "rb") as lines, open(out, "wb", buffering=0) as shown:
        was_noise = False
        for line in lines:
            was_noise = line.startswith(_NOISE) or (was_noise and line == b"\n")
            if not was_noise:
                shown.write(line)


def take_signals() -> None:
    """If the JVM has started this process, it passes these signals on from now on; otherwise it ignores them."""
    SparkContext._ensure_initialized()
    gateway: Any = SparkContext._gateway
    sun = gateway.jvm.sun.misc
    is_parent = "PYSPARK_GATEWAY_PORT" in os.environ
    if is_parent:
        ensure_callback_server_started(gateway)
    for number in _SIGNALS:
        handler = _SendOn(number) if is_parent else sun.SignalHandler.SIG_IGN
        sun.Signal.handle(sun.Signal(number.name.removeprefix("SIG")), handler)


class _SendOn:
    """A handler in the JVM. The names are those of `sun.misc.SignalHandler`."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def handle(self, _signal: Any) -> None:
        """Called by the JVM, in a thread of this process."""
        os.kill(os.getpid(), self._number)

    class Java:
        """What it implements."""

        implements: Final = ["sun.misc.SignalHandler"]
