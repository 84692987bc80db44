"""A standalone Spark cluster on loopback: a master and workers of one core each, from the installed pyspark.

It starts what it needs in process groups of their own, ends only these, and they end with this process in any case.
"""

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import pyspark

_LIBC: Final = ctypes.CDLL(None)
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG
_WITHIN_S: Final = 120.0
_HOME: Final = Path(pyspark.__file__).parent
_JAVA: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=128m"
_ENVIRONMENT: Final = {
    "SPARK_HOME": str(_HOME),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": f"{_JAVA} -Dspark.shuffle.service.enabled=false",
    "SPARK_NO_DAEMONIZE": "true",
}
_SETTINGS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": _JAVA,
    "spark.shuffle.service.enabled": "false",
    "spark.ui.enabled": "false",
}

_T = TypeVar("_T")


@dataclass
class Process:
    """A process with its group and its log; all of the group ends with `kill`."""

    command: list[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    popen: "subprocess.Popen[bytes] | None" = None

    def start(self) -> "subprocess.Popen[bytes]":
        """Start it; its output goes to the end of the log."""
        assert self.popen is None, "it runs already"
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                self.command, cwd=self.log.parent, env={**os.environ, **_ENVIRONMENT, **self.environment},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0,
                preexec_fn=lambda: _LIBC.prctl(_DIE_WITH_PARENT, signal.SIGKILL),
            )  # fmt: skip
        return self.popen

    def wait(self, within_s: float = _WITHIN_S) -> int:
        """Its exit code, once it has ended."""
        assert self.popen is not None, "it does not run"
        code: int = self.popen.wait(within_s)
        return code

    def kill(self) -> None:
        """Kill it and all that it has started in its group, if it runs."""
        if self.popen is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.popen.pid, signal.SIGKILL)
            self.popen.wait()
            self.popen = None

    def signal(self, number: int) -> None:
        """Send a signal to all of its group, as SIGSTOP and SIGCONT, which stop and continue a host."""
        assert self.popen is not None, "it does not run"
        os.killpg(self.popen.pid, number)

    def output(self, since: int = 0) -> str:
        """Its log, from this size on."""
        return self.log.read_bytes()[since:].decode(errors="replace") if self.log.exists() else ""

    def found(self, pattern: str, since: int = 0) -> re.Match[str]:
        """Wait until its log has this, after the size `since`."""
        return wait_for(lambda: re.search(pattern, self.output(since)), self)


class Cluster:
    """A master and workers; `workers` are numbered from 0. `before`: what Spark's commands begin with."""

    def __init__(
        self,
        folder: Path,
        workers: int = 3,
        settings: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self._before = before
        self.url = ""
        self.workers = [Process([], folder / f"worker{number}.log") for number in range(workers)]
        self.settings = {**_SETTINGS, **(settings or {})}
        self._master = Process(
            self._spark_class("deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
            folder / "master.log",
        )
        self._submitted: list[Process] = []

    def start(self) -> None:
        """Start all, and return once the workers are registered."""
        self._master.start()
        self.url = self._master.found(r"Starting Spark master at (spark://\S+)")[1]
        ends = [self._launch(number) for number in range(len(self.workers))]
        for is_there in ends:
            is_there()

    def start_worker(self, number: int) -> None:
        """Start a worker that was killed, and return once it is registered."""
        self._launch(number)()

    def kill_worker(self, number: int) -> None:
        """Kill a worker and its executors, as when its host is lost."""
        self.workers[number].kill()

    def executors(self, number: int) -> list[int]:
        """The process ids of the executors on this worker."""
        worker = self.workers[number].popen
        assert worker is not None, "it does not run"
        children = Path(f"/proc/{worker.pid}/task").glob("*/children")
        pids = [int(pid) for file in children for pid in file.read_text().split()]
        return [pid for pid in pids if b"CoarseGrainedExecutorBackend" in _cmdline(pid)]

    def kill_executor(self, number: int) -> int:
        """Kill an executor on this worker once there is one; the worker starts another one. Returns its process id."""
        [pid, *_] = wait_for(lambda: self.executors(number), self.workers[number])
        os.kill(pid, signal.SIGKILL)
        return pid

    def submit(self, *arguments: str, name: str = "driver", environment: Mapping[str, str] | None = None) -> Process:
        """`spark-submit ARGUMENTS` on this cluster; the driver is a process here, and its log is `NAME.log`."""
        settings = [part for key, value in self.settings.items() for part in ("--conf", f"{key}={value}")]
        command = [*self._before, str(_HOME / "bin" / "spark-submit"), "--master", self.url, *settings, *arguments]
        return self.run(command, name=name, environment=environment)

    def run(self, command: list[str], *, name: str, environment: Mapping[str, str] | None = None) -> Process:
        """Any command, with the environment of the cluster; it ends with the cluster."""
        own = {"SPARK_LOCAL_DIRS": str(self.folder / f"{name}.local")}
        process = Process(command, self.folder / f"{name}.log", own | dict(environment or {}))
        process.start()
        self._submitted.append(process)
        return process

    def stop(self) -> None:
        """End all that was started here."""
        for process in (*self._submitted, *self.workers, self._master):
            with suppress(ProcessLookupError):
                process.kill()

    def _spark_class(self, name: str, *arguments: str) -> list[str]:
        return [*self._before, str(_HOME / "bin" / "spark-class"), f"org.apache.spark.{name}", *arguments]

    def _launch(self, number: int) -> Callable[[], object]:
        worker = self.workers[number]
        place = self.folder / f"worker{number}"
        worker.command = self._spark_class(
            "deploy.worker.Worker", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0",
            "--cores", "1", "--memory", "1g", "--work-dir", str(place), self.url,
        )  # fmt: skip
        worker.environment = {"SPARK_LOCAL_DIRS": str(place / "local")}
        size = worker.log.stat().st_size if worker.log.exists() else 0
        worker.start()
        return lambda: worker.found("Successfully registered with master", size)


def wait_for(found: Callable[[], _T | None], process: Process, within_s: float = _WITHIN_S) -> _T:
    """What `found` gives once it gives something, while the process runs."""
    until_s = time.monotonic() + within_s
    while not (it := found()):
        assert process.popen is not None
        assert process.popen.poll() is None, process.output()[-5_000:]
        assert time.monotonic() < until_s, process.output()[-5_000:]
        time.sleep(0.05)
    return it


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
