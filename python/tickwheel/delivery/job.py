"""One run of `tickwheel deliver`: a thread reads and accepts, the timer delivers, the caller's thread looks after both.

With a `speed` the whole input is read before the replay starts; otherwise delivery goes on while the input is read,
which may never end. The run ends when the input has ended and all is delivered, at the first Ctrl-C, or when reading or
sending fails; what was due by then is still sent. The second Ctrl-C ends the process on the spot.
"""

import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tickwheel import SystemTimer, Timer
from tickwheel.delivery.clock import ReplayClock, WallClock
from tickwheel.delivery.dead_letters import DeadLetters
from tickwheel.delivery.deliverer import Deliverer
from tickwheel.delivery.errors import BadRecord, DeliveryFailed
from tickwheel.delivery.message import Cancel, Columns, Message, check
from tickwheel.delivery.progress import Reporter
from tickwheel.delivery.record import Record
from tickwheel.delivery.sinks import Sink
from tickwheel.delivery.sources import Source, read
from tickwheel.delivery.summary import Summary

_LOOK_EVERY_S = 0.1
_STOP_WITHIN_MS = 2000
_PLACING_MS = 0.005  # to put one message on the timer


@dataclass(frozen=True, slots=True)
class Job:
    """What to deliver, and how. `from_ms` and `speed` are those of a replay; `from_ms=None`: the first due time."""

    sources: Sequence[Source]
    sink: Sink
    dead_letters: DeadLetters
    columns: Columns
    speed: float | None
    from_ms: int | None


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended: `failure` is for people, `not_delivered` is in order of acceptance; `stopped_at` is the last
    record read, where the input was not read to its end.
    """

    summary: Summary
    not_delivered: Sequence[Message]
    failure: str | None
    interrupted: bool
    stopped_at: str | None


def run(job: Job, reporter: Reporter) -> Result:
    """Run it to its end. Call it in the main thread, which gets the Ctrl-C."""
    timer = SystemTimer("deliver", on_error=lambda _task, error: deliverer.fail(error))
    deliverer = Deliverer(timer, job.sink)
    reading = _Reading(job, deliverer, timer)
    failure, interrupted = None, False
    with reporter:
        try:
            reading.start()
            while not deliverer.wait(_LOOK_EVERY_S):
                reporter.show(deliverer.summary, reading=reading.is_alive())
            reporter.show(deliverer.summary, reading=False)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            interrupted = True
            reporter.say("stopping (Ctrl-C again ends at once)")
        except DeliveryFailed as error:
            failure = str(error)
        reading.stop()
        try:
            deliverer.close(_STOP_WITHIN_MS if failure or interrupted else None)
        except DeliveryFailed as error:
            failure = failure or str(error)
    return Result(deliverer.summary, deliverer.not_delivered(), failure, interrupted, reading.stopped_at)


class _Reading(threading.Thread):
    """Reads until the input ends or `stop`; a daemon, as it may wait for standard input for ever."""

    def __init__(self, job: Job, deliverer: Deliverer, timer: Timer) -> None:
        super().__init__(name="reader-deliver", daemon=True)
        self._job = job
        self._deliverer = deliverer
        self._timer = timer
        self._taking = threading.Lock()  # guards `_stopped`: held while a record is taken, not while waiting for one
        self._stopped = False
        self.stopped_at: str | None = "its start"

    def stop(self) -> None:
        """From now on nothing is accepted or written; does not wait for what is being read."""
        with self._taking:
            self._stopped = True

    def run(self) -> None:
        """In the thread; every error ends the run by the deliverer."""
        try:
            if self._job.speed is None:
                self._deliverer.start(WallClock(self._timer))
            for record in read(self._job.sources, self._job.columns):
                with self._taking:
                    if self._stopped:
                        return
                    self.stopped_at = f"line {record.line} of {record.source}"
                    self._take(record)
            self.stopped_at = None
            if self._job.speed is not None:
                self._deliverer.start(self._replay(self._job.speed))
            self._deliverer.end_of_input()
        except BaseException as error:
            self._deliverer.fail(error)

    def _take(self, record: Record) -> None:
        now_ns = time.time_ns() if self._job.speed is None else None
        try:
            item = check(record.fields(), self._job.columns, now_ns)
            if isinstance(item, Cancel):
                self._deliverer.cancel(item)
            else:
                self._deliverer.accept(item)
        except BadRecord as bad:
            self._job.dead_letters.put(record, bad)
            self._deliverer.summary.dead_letters += 1

    def _replay(self, speed: float) -> ReplayClock:
        from_ms = self._job.from_ms if self._job.from_ms is not None else self._deliverer.first_due_ms()
        head_start_ms = _PLACING_MS * self._deliverer.summary.accepted
        return ReplayClock(self._timer, speed, from_ms or 0, head_start_ms)
