"""The reader of a run: a thread that reads files and submits their records.

Its position in the input is committed with the records. It does not wait for answers; if too much is queued, it blocks.
What is refused, as the store can't be written now, is submitted again, with all that came after it (D6).
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Any, Protocol

from tickwheel._event import Event
from tickwheel.delivery.base.errors import StoreUnavailable
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.entries import Answer
from tickwheel.delivery.model.message import Columns
from tickwheel.delivery.read.folders import some_of
from tickwheel.delivery.read.sources import OpenSource, Source

ITS_START = "its start"
"""The position of a reader that has read nothing."""

_SUBMIT_WITHIN_S = 1
_TRY_STORE_EVERY_S = 0.2


class Reader(Protocol):
    """Submits the input, in threads of its own. An error goes to `Running.fail`, which ends the run."""

    @property
    def stopped_at(self) -> str | None:
        """The last position, as text; `None` when everything is submitted."""

    def start(self) -> None:
        """Start reading."""

    def has_ended(self, timeout_s: float) -> bool:
        """Whether everything was submitted and committed, or reading failed, within this time."""

    def stop(self) -> None:
        """Submit nothing from now on."""


class Reading(threading.Thread):
    """Reads until the inputs end or until `stop`. A daemon thread, because it may wait for standard input for ever."""

    def __init__(
        self,
        sources: Sequence[Source],
        columns: Columns,
        running: Running,
        say: Callable[[str], object],
        *,
        is_replay: bool,
    ) -> None:
        super().__init__(name="reader-deliver", daemon=True)
        self._sources = sources
        self._columns = columns
        self._running = running
        self._say = say
        self._is_replay = is_replay
        self._taking = threading.Lock()  # held while records are submitted, not during a wait
        self._stopped = False
        self._over = Event()
        self._submitted = deque[tuple[list[Any], Future[list[Answer]]]]()  # perhaps not on disk
        self.stopped_at: str | None = ITS_START

    def stop(self) -> None:
        """Submit nothing from now on. The call does not wait for a read in progress. If a submit waits for room, the
        call waits at most 1 s for it; such a submit ends when the engine closes.
        """
        self._stopped = True
        if self._taking.acquire(timeout=_SUBMIT_WITHIN_S):
            self._taking.release()

    def has_ended(self, timeout_s: float) -> bool:
        """Whether everything was read and committed, or reading failed, within this time."""
        if not self._taking.locked():
            self._goes_on()  # the thread may wait for input for ever
        return self._over.wait(timeout_s)

    def run(self) -> None:
        """In the thread. Every error goes to the engine, which ends the run."""
        try:
            if self._read():
                self.stopped_at = None
        except BaseException as error:
            if not self._stopped:
                self._running.fail(error)
        self._over.set()

    def _read(self) -> bool:
        """Whether it reached the end."""
        nothing_new = list[str]()
        for source in self._sources:
            opened = OpenSource(source, self._columns, self._running.engine.inputs, self._now_ns)
            read = 0
            for part in opened:
                read += len(part.records)
                while not self._goes_on() and not self._stopped:
                    self._over.wait(_TRY_STORE_EVERY_S)
                with self._taking:
                    if self._stopped:
                        return False
                    self.stopped_at = f"line {part.line} of {source.name}"
                    self._submit([part.records, *([part.progress] if part.progress else [])])
            if opened.was_read and not read:
                nothing_new.append(source.name)
        if nothing_new:  # with another option, a user expects that they are read again
            self._say(f"Nothing new in files that earlier runs have read to the end: {some_of(nothing_new)}.")
            self._say("To read one again, as with another option: copy it to another name, and name that.")
        while self._submitted:
            if self._goes_on():
                wait([answers for _, answers in self._submitted], _TRY_STORE_EVERY_S)
            elif self._stopped:
                return False
            else:
                self._over.wait(_TRY_STORE_EVERY_S)
        return True

    def _submit(self, items: list[Any]) -> None:
        try:
            answers = self._running.submit(items, follows=bool(self._submitted))
        except StoreUnavailable as refused:
            answers = Future()
            answers.set_exception(refused)
        self._submitted.append((items, answers))

    def _goes_on(self) -> bool:
        """Whether nothing is refused. What was is submitted again once the store can be written."""
        with self._taking:
            try:
                while self._submitted and self._submitted[0][1].done():
                    self._submitted[0][1].result()
                    self._submitted.popleft()
            except StoreUnavailable:
                if self._stopped or self._running.engine.waits_for_store is not None:
                    return False
                again, self._submitted = self._submitted, deque()
                for items, _ in again:
                    self._submit(items)
            return True

    def _now_ns(self) -> int | None:
        return None if self._is_replay else time.time_ns()
