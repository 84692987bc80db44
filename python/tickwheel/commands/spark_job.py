"""The common parts of commands that run one batch job on Spark: the session, Ctrl-C, errors and exit codes."""

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from tickwheel._stopping import stopped_by
from tickwheel.commands.printing import errors_reported, say

Say = Callable[[str], None]


class _Stopped(Exception):
    """Ctrl-C was pressed."""


@contextmanager
def job_reported(out: Path) -> Iterator[None]:
    """As `errors_reported`, for a job that writes to the folder `out`. Ctrl-C ends it with 130."""
    try:
        with errors_reported():
            yield
    except KeyboardInterrupt as stop:
        say(f"Stopped by {stopped_by(stop)}: {out} has not changed. Run the same command again.", err=True)
        sys.exit(130)


def run_on_spark(
    name: str,
    module: str,
    out: Path,
    check: Callable[[ModuleType], None],
    work: Callable[[ModuleType, Any, Say], Path],
) -> None:
    """Import `module`, call `check` on the arguments, run `work` on a session named `name`, and print its result."""
    from tickwheel.delivery.base.errors import DeliveryFailed

    with job_reported(out):
        imported, spark_errors = _imported(module), _imported("pyspark.errors")
        check(imported)
        try:
            page = _interruptible(name, imported, work, partial(say, err=True))
        except spark_errors.PySparkException as error:
            from tickwheel.spark.failing import reason

            raise DeliveryFailed(reason(error)) from error
    say(f"Done: {page}", err=True)


def _imported(module: str) -> ModuleType:
    from tickwheel.delivery.base.errors import WrongUsage

    try:
        return import_module(module)
    except ImportError as error:
        raise WrongUsage(f"{error.name} can't be imported ({error}): run pip install 'tickwheel[spark]'") from error


def _interruptible(name: str, module: ModuleType, work: Callable[[ModuleType, Any, Say], Path], say: Say) -> Path:
    """Run the work in a thread of its own, so that Ctrl-C never interrupts a call between Python and the JVM.

    Ctrl-C cancels the jobs and ends the work at its next step. Then the session is stopped.
    """
    from tickwheel.spark.session import laptop_session

    stopping = threading.Event()
    sessions: list[Any] = []

    def step(line: str) -> None:
        if stopping.is_set():
            raise _Stopped
        say(line)

    def job() -> Path:
        step("Starting Spark.")
        sessions.append(laptop_session(name))
        try:
            return work(module, sessions[0], step)
        finally:
            with suppress(Exception):  # the JVM may have got the signal too, and the work is done
                sessions[0].stop()

    future: Future[Path] = Future()

    def run() -> None:
        try:
            future.set_result(job())
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=run, name="spark-job")
    try:
        thread.start()  # its job may be at work before this returns, and before Ctrl-C is seen here
        return future.result()
    except KeyboardInterrupt:
        stopping.set()
        while thread.ident is not None and not wait([future], 0.2).done:
            for session in sessions:
                with suppress(Exception):  # it may be stopping at this moment
                    session.sparkContext.cancelAllJobs()
        if future.done() and not _is_cancelled(future.exception()):
            return future.result()  # it came after the last step, or the work failed by itself
        raise


def _is_cancelled(error: BaseException | None) -> bool:
    """Whether this is what Ctrl-C did to the work: a step, a job or the JVM was stopped."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return any(isinstance(it, _Stopped | PySparkException | Py4JError) for it in (error, error and error.__cause__))
