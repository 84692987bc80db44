"""One run of `tickwheel deliver`: a reader submits messages, the engine delivers them, the caller's thread waits.

With a `speed` the whole input is read before the replay starts; otherwise messages are delivered while the input is
read, which may never end. The run ends when the input has ended and everything is delivered, at the first Ctrl-C or
SIGTERM, or when reading or sending fails; messages due by then are still sent. The second one ends the process
immediately. Undelivered messages wait in the store for the next run.
"""

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp

from tickwheel._stopping import signals_ignored, stop_noted, stopped_by, stopped_by_signals
from tickwheel.delivery.base.errors import DeliveryFailed, WrongUsage
from tickwheel.delivery.command.reading import ITS_START, Reader
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.entries import Letter
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.model.summary import Summary
from tickwheel.delivery.observe.dead_letters import PutLetters
from tickwheel.delivery.observe.progress import Reporter
from tickwheel.delivery.sinks import Opener

_LOOK_EVERY_S = 0.1
_STOP_WITHIN_S = 2
_SAY_AFTER_S = 2  # what the end of a run waits for
_HEAD_START_MS = 20  # to load the first messages into memory


@dataclass(frozen=True, slots=True)
class Job:
    """The input, the destination and the settings of a run. `read` makes the reader, from the `Running` and the path of
    the store. `from_ms` and `speed` are for a replay; `from_ms=None`: the first due time in the store. At the end, if
    the store exists, the run calls `at_end` with the closed store and the counts; `at_end` may raise `DeliveryFailed`.
    Without a `store` the run makes one, and removes it after `at_end`. `events`: the file for a recording of the timer.
    One that does not deliver ends once all is read, and on disk.
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
    delivers: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended. `failure`: an error text. `stopped_at`: the last record read, if the input was not read to its
    end. `store`: the store with the undelivered messages, if it is kept. `late_letters`: dead letters of earlier runs,
    which could not write them. `letters_left`: some of this run are not written. `stopped_by`: the signal that
    interrupted it. `recurring`: messages that come again, each with an occurrence that waits. `loaded_into`: where
    messages were put, if the run delivers none.
    """

    summary: Summary
    failure: str | None
    interrupted: bool
    stopped_at: str | None
    store: Path | None
    late_letters: int = 0
    letters_left: bool = False
    stopped_by: str = "Ctrl-C"
    recurring: int = 0
    loaded_into: str | None = None


class _Letters:
    """Counts the dead letters that are written."""

    def __init__(self, put: PutLetters) -> None:
        self._put = put
        self.written = 0

    def put(self, letters: Sequence[Letter]) -> None:
        """Write them."""
        self._put(letters)
        self.written += len(letters)


def run(job: Job, reporter: Reporter) -> Result:
    """Run until the end. Call it in the main thread, which gets the Ctrl-C. Errors: `WrongUsage`, `DeliveryFailed`."""
    if job.store is None:
        with _temporary_store() as store:
            return _run_and_end(job, store, reporter)
    with stopped_by_signals():
        return _run_and_end(job, job.store, reporter)


@contextmanager
def _temporary_store() -> Iterator[Path]:
    """The path of a temporary store. It is removed at the end of the run, also after a second Ctrl-C."""
    folders: list[str] = []

    def remove() -> None:
        with signals_ignored():
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)

    with stopped_by_signals(remove):
        try:
            with stop_noted():
                folders.append(mkdtemp(prefix="tickwheel-"))
            yield Path(folders[0], "store.db")
        finally:
            remove()


def _run_and_end(job: Job, store: Path, reporter: Reporter) -> Result:
    result = _run(job, store, reporter)
    if job.at_end is None or not store.exists():
        return result
    try:
        job.at_end(store, result.summary)
    except DeliveryFailed as error:
        return replace(result, failure=result.failure or str(error))
    except KeyboardInterrupt as stop:
        return replace(result, interrupted=True, stopped_by=stopped_by(stop))
    return result


def _run(job: Job, store: Path, reporter: Reporter) -> Result:
    letters = _Letters(job.put_letters)
    into = None if job.delivers else str(store)
    try:
        running = Running(store, job.opener, job.settings, letters.put, reporter.say)
    except KeyboardInterrupt as stop:
        by = stopped_by(stop)
        return Result(Summary(), None, True, ITS_START, job.store, stopped_by=by, loaded_into=into)
    except DeliveryFailed as error:
        return Result(Summary(), str(error), interrupted=False, stopped_at=ITS_START, store=job.store, loaded_into=into)
    with reporter:
        end = _End(running, reporter)
        try:
            with end.noted():
                _deliver(job, store, running, end, reporter)
        except WrongUsage:  # from the reader; nothing is due yet
            with suppress(DeliveryFailed):
                running.close(_STOP_WITHIN_S)
            raise
        end.close(max(job.settings.sink_timeout_s, _STOP_WITHIN_S))
    stopped_at = end.reading.stopped_at if end.reading else ITS_START
    summary = running.summary
    late = max(letters.written - summary.dead_letters, 0)
    left, by = running.engine.left_letters, end.stopped_by
    ended = (end.failure, end.interrupted, stopped_at, job.store, late, left, by, running.recurring)
    return Result(summary, *ended, loaded_into=into)


def _deliver(job: Job, store: Path, running: Running, end: "_End", reporter: Reporter) -> None:
    """Until everything is delivered."""
    if job.events is not None:
        end.recording = _record(running, job.events)
    end.reading = reading = job.read(running, store)
    with stop_noted() as stop:
        if job.speed is None and job.delivers:
            running.start()
        reading.start()
        while not stop.is_set() and not reading.has_ended(_LOOK_EVERY_S):
            reporter.show(running.summary, reading=True)
            running.check()
        if stop.is_set() or not job.delivers:
            return
        if job.speed is not None:
            from_ms = job.from_ms if job.from_ms is not None else running.engine.first_due_ms
            running.start_replay(job.speed, from_ms or 0, _HEAD_START_MS)
        while not stop.is_set() and not running.wait(_LOOK_EVERY_S):
            reporter.show(running.summary, reading=False)
        reporter.show(running.summary, reading=False)


class _End:
    """How a run ends: the first failure, and whether a signal stopped it."""

    def __init__(self, running: Running, reporter: Reporter) -> None:
        self._running = running
        self._reporter = reporter
        self.reading: Reader | None = None
        self.recording: Callable[[], None] | None = None
        self.failure: str | None = None
        self.interrupted = False
        self.stopped_by = ""

    @contextmanager
    def noted(self) -> Iterator[None]:
        """A failure, or the signal, ends the block."""
        try:
            yield
        except KeyboardInterrupt as stop:
            self.interrupted, self.stopped_by = True, stopped_by(stop)
            self._reporter.say("stopping (press Ctrl-C again to end immediately)")
        except DeliveryFailed as error:
            self.failure = self.failure or str(error)

    def close(self, within_s: float) -> None:
        """Stop the reader, then close the engine and the recording. If the destination does not close, the wait ends
        after `within_s`; after a failure or a signal, it ends after 2 s.
        """
        if self.reading is not None:
            with self.noted(), stop_noted():
                self.reading.stop()
        if self.failure or self.interrupted:
            with self.noted():
                self._running.close(_STOP_WITHIN_S)
        else:
            self._close_after_all(within_s)
        if self.interrupted:  # perhaps while it was closed
            with self.noted():
                self._running.close(_STOP_WITHIN_S)
        if self.recording is not None:
            with self.noted():
                self.recording()

    def _close_after_all(self, within_s: float) -> None:
        """Everything is delivered and committed."""
        text = f"waiting for the destination to close, at most {within_s:g} s"
        slow = threading.Timer(_SAY_AFTER_S, self._reporter.say, [text])
        slow.daemon = True
        with self.noted():
            with stop_noted(), suppress(RuntimeError):  # there is no thread to be had
                slow.start()
            self._running.close(within_s)
            if self._running.engine.has_open_sinks:
                raise DeliveryFailed(f"the destination did not close within {within_s:g} s")
        with self.noted(), stop_noted():
            slow.cancel()


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
