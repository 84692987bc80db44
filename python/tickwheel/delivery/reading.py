"""The reader of a run: a thread that reads files and submits what has come. NDJSON goes to the engine in blocks of lines.

Its position in the input is committed with the records. It does not wait for answers; if too much is queued, it blocks.
"""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final, Protocol

from tickwheel._native import NdjsonLines
from tickwheel.delivery.entries import Answer, Item, Letter, Read
from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.lines import MAX_RECORD
from tickwheel.delivery.message import MAX_PAYLOAD, Cancel, Columns, check
from tickwheel.delivery.record import Record
from tickwheel.delivery.running import Running
from tickwheel.delivery.sources import OpenSource, Source

_TOGETHER: Final = 250


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

    def __init__(self, sources: Sequence[Source], columns: Columns, running: Running, *, is_replay: bool) -> None:
        super().__init__(name="reader-deliver", daemon=True)
        self._sources = sources
        self._columns = columns
        self._running = running
        self._is_replay = is_replay
        self._taking = threading.Lock()  # guards `_stopped`; held while records are submitted, not during a wait
        self._stopped = False
        self._over = threading.Event()
        self._last: Future[list[Answer]] | None = None
        self.stopped_at: str | None = "its start"

    def stop(self) -> None:
        """Submit nothing from now on. Does not wait for a read in progress."""
        with self._taking:
            self._stopped = True

    def has_ended(self, timeout_s: float) -> bool:
        """Whether everything was read and committed, or reading failed, within this time."""
        return self._over.wait(timeout_s)

    def run(self) -> None:
        """In the thread. Every error goes to the engine, which ends the run."""
        try:
            if self._read():
                self.stopped_at = None
        except BaseException as error:
            self._running.fail(error)
        self._over.set()

    def _read(self) -> bool:
        """Whether it reached the end."""
        for source in self._sources:
            opened = OpenSource(source, self._columns, self._running.inputs)
            reached = self._read_lines(opened) if opened.is_ndjson else self._read_records(opened)
            if not reached:
                return False
        if self._last is not None:
            self._last.result()  # all is on disk
        return True

    def _read_lines(self, opened: OpenSource) -> bool:
        name, columns = opened.source.name, self._columns
        parser = None
        for block, progress in opened.lines(MAX_RECORD):
            parser = parser or NdjsonLines(
                name, (columns.id, columns.key, columns.due, columns.payload), MAX_PAYLOAD, after=opened.after
            )
            with self._taking:
                if self._stopped:
                    return False
                self.stopped_at = f"line {block.line} of {name}"
                self._last, _ = self._running.submit_lines(
                    parser,
                    block.data,
                    first_line=block.first_line,
                    left_out=block.left_out,
                    now_ns=self._now_ns(),
                    more=[progress] if progress else (),
                )
        return True

    def _read_records(self, opened: OpenSource) -> bool:
        items: list[Item] = []
        line = 0
        for record in opened:
            items.append(self._item(record))
            line = record.line
            if len(items) >= _TOGETHER:
                if not self._hand_in(items, opened, line):
                    return False
                items = []
        return not items or self._hand_in(items, opened, line)

    def _hand_in(self, items: list[Item], opened: OpenSource, line: int) -> bool:
        progress = opened.progress(line)
        with self._taking:
            if self._stopped:
                return False
            self.stopped_at = f"line {line} of {opened.source.name}"
            self._last = self._running.submit([*items, progress] if progress else items)
        return True

    def _item(self, record: Record) -> Item:
        try:
            found = check(record.fields(), self._columns, self._now_ns())
        except BadRecord as bad:
            return Letter(record.source, record.line, bad.reason, bad.allowed, record.data)
        return found if isinstance(found, Cancel) else Read(found, record.source, record.line, record.data)

    def _now_ns(self) -> int | None:
        return None if self._is_replay else time.time_ns()
