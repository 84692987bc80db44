"""The Spark session: that of `spark-submit`, or one with settings that fit a laptop (rules S1, S2)."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.spark.quiet import quiet_start

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
