"""One run of `tickwheel deliver`: a reader submits messages, the engine delivers them, the caller's thread waits.

With a `speed` the whole input is read before the replay starts; otherwise messages are delivered while the input is
read, which may never end. The run ends when the input has ended and everything is delivered, at the first Ctrl-C or
SIGTERM, or when reading or sending fails; messages due by then are still sent. The second one ends the process
immediately. Undelivered messages wait in the store for the next run.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tickwheel.delivery.dead_letters import PutLetters
from tickwheel.delivery.errors import DeliveryFailed, WrongUsage
from tickwheel.delivery.progress import Reporter
from tickwheel.delivery.reading import Reader
from tickwheel.delivery.running import Running
from tickwheel.delivery.settings import Settings
from tickwheel.delivery.sinks import Opener
from tickwheel.delivery.summary import Summary

_LOOK_EVERY_S = 0.1
_STOP_WITHIN_S = 2
_HEAD_START_MS = 20  # to load the first messages into memory


@dataclass(frozen=True, slots=True)
class Job:
    """What to deliver, and how. `read` makes the reader, from what runs and the path of the store. `from_ms` and
    `speed` are for a replay; `from_ms=None`: the first due time in the store. Without a `store` the run makes one and
    removes it at the end; before that it calls `at_end` with the closed store and the counts. `at_end` may raise
    `DeliveryFailed`. `events`: the file for a recording of the timer.
    """

    read: Callable[[Running, Path], Reader]
    opener: Opener
    put_letters: PutLetters
    settings: Settings
    store: Path | None
    speed: float | None
    from_ms: int | None
    at_end: Callable[[Path, Summary], object] | None = None
    events: Path | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended. `failure`: an error text. `stopped_at`: the last record read, if the input was not read to its
    end. `store`: the store with the undelivered messages, if it is kept.
    """

    summary: Summary
    failure: str | None
    interrupted: bool
    stopped_at: str | None
    store: Path | None


def run(job: Job, reporter: Reporter) -> Result:
    """Run until the end. Call it in the main thread, which gets the Ctrl-C. Errors: `WrongUsage`, `DeliveryFailed`."""
    if job.store is not None:
        with _terminated_as_interrupted():
            return _run_and_end(job, job.store, reporter)
    with TemporaryDirectory(prefix="tickwheel-", ignore_cleanup_errors=True) as folder, _terminated_as_interrupted():
        return _run_and_end(job, Path(folder, "store.db"), reporter)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM is a Ctrl-C (rule D13)."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run_and_end(job: Job, store: Path, reporter: Reporter) -> Result:
    result = _run(job, store, reporter)
    if job.at_end is None or not store.exists():
        return result
    try:
        job.at_end(store, result.summary)
    except DeliveryFailed as error:
        return replace(result, failure=result.failure or str(error))
    except KeyboardInterrupt:
        return replace(result, interrupted=True)
    return result


def _run(job: Job, store: Path, reporter: Reporter) -> Result:
    failure, interrupted, reading = None, False, None
    try:
        running = Running(store, job.opener, job.settings, job.put_letters, reporter.say)
    except KeyboardInterrupt:
        return Result(Summary(), None, interrupted=True, stopped_at="its start", store=job.store)
    except DeliveryFailed as error:
        return Result(Summary(), str(error), interrupted=False, stopped_at="its start", store=job.store)
    ends: list[Callable[[], object]] = []
    with reporter:
        try:
            if job.events is not None:
                ends.append(_record(running, job.events))
            reading = job.read(running, store)
            if job.speed is None:
                running.start()
            reading.start()
            while not reading.has_ended(_LOOK_EVERY_S):
                reporter.show(running.summary, reading=True)
                running.check()
            if job.speed is not None:
                from_ms = job.from_ms if job.from_ms is not None else running.first_due_ms
                running.start_replay(job.speed, from_ms or 0, _HEAD_START_MS)
            while not running.wait(_LOOK_EVERY_S):
                reporter.show(running.summary, reading=False)
            reporter.show(running.summary, reading=False)
        except KeyboardInterrupt:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            interrupted = True
            reporter.say("stopping (press Ctrl-C again to end immediately)")
        except DeliveryFailed as error:
            failure = str(error)
        except WrongUsage:  # from the reader; nothing is due yet
            with suppress(DeliveryFailed):
                running.close(_STOP_WITHIN_S)
            raise
        if reading is not None:
            reading.stop()
        ends.insert(0, partial(running.close, _STOP_WITHIN_S if failure or interrupted else None))
        for end in ends:
            try:
                end()
            except DeliveryFailed as error:
                failure = failure or str(error)
    stopped_at = reading.stopped_at if reading else "its start"
    return Result(running.summary, failure, interrupted, stopped_at, job.store)


def _record(running: Running, path: Path) -> Callable[[], None]:
    """Start a recording, and return the function that ends it. Errors of both: `DeliveryFailed`."""
    from tickwheel.recording import Recording  # loads pyarrow

    def end() -> None:
        with _write_errors(path):
            recording.close()

    with _write_errors(path):
        recording = Recording(running.engine, path)
    return end


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DeliveryFailed(f"the timer's events can't be written to {path}: {error.strerror or error}") from error
