"""What the commands that are one batch job on Spark share: its session, Ctrl-C, errors and exit codes."""

import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from rich.console import Console

Say = Callable[[str], None]


class _Stopped(Exception):
    """Ctrl-C was pressed."""


def run_on_spark(
    name: str, module: str, out: Path, check: Callable[[ModuleType], None], work: Callable[[ModuleType, Any, Say], Path]
) -> None:
    """Imports `module`, lets `check` look at the arguments, then `work` on a session named `name`, and says where the
    page is. Ends the process on errors: 2 for the caller's, 3 for others, 130 for Ctrl-C.
    """
    from tickwheel.delivery.errors import DeliveryFailed, WrongUsage

    console = Console(stderr=True)

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    try:
        imported, spark_errors = _imported(module), _imported("pyspark.errors")
        check(imported)
        try:
            page = _interruptible(name, imported, work, say)
        except spark_errors.PySparkException as error:
            from tickwheel.spark.failing import reason

            raise DeliveryFailed(reason(error)) from error
    except WrongUsage as error:
        raise click.UsageError(str(error)) from error
    except KeyboardInterrupt:
        say(f"Stopped by Ctrl-C: {out} is as it was. Run the same command again.")
        sys.exit(130)
    except DeliveryFailed as error:
        say(f"Failed: {error}.")
        sys.exit(3)
    say(f"Done: {page}")


def _imported(module: str) -> ModuleType:
    from tickwheel.delivery.errors import WrongUsage

    try:
        return import_module(module)
    except ImportError as error:
        raise WrongUsage(f"{error.name} can't be imported ({error}): run pip install 'tickwheel[spark]'") from error


def _interruptible(name: str, module: ModuleType, work: Callable[[ModuleType, Any, Say], Path], say: Say) -> Path:
    """The work in a thread of its own, so that Ctrl-C never comes in the middle of what Python and the JVM tell each
    other: it cancels the jobs and ends the work at its next step. Then the session is stopped.
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
            sessions[0].stop()

    signal.signal(signal.SIGINT, signal.default_int_handler)
    with ThreadPoolExecutor(1) as thread:
        future: Future[Path] = thread.submit(job)
        try:
            return future.result()
        except KeyboardInterrupt:
            stopping.set()
            while not wait([future], 0.2).done:
                for session in sessions:
                    with suppress(Exception):  # it may be stopping just now
                        session.sparkContext.cancelAllJobs()
            raise
