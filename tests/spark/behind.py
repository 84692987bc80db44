"""The engine itself, as a deliverer behind a shard."""

import json
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from delivery.delivering import LONG_S, Run, to_function
from tickwheel._native import ArrowRows, NdjsonLines
from tickwheel.delivery import Delivery
from tickwheel.delivery.model.entries import Reschedule
from tickwheel.delivery.model.message import Columns
from tickwheel.delivery.read.hand_off_rows import HANDED

STANDS_STILL: Final = 1e-6  # a recorded second in eleven days


class Deliverer:
    """The engine itself behind the hold. Its time stands still: a slow replay begins at `now_ms`, and anew where the
    test advances. `came` has times since `from_ms`.
    """

    def __init__(self, folder: Path, now_ms: int, from_ms: int) -> None:
        self.folder, self._now_ms, self._from_ms = folder, now_ms, from_ms
        self._sent: list[Delivery] = []
        self._put_off_ms: int | None = None
        self._is_known = self._is_empty = True
        self._recurs = False
        self._run = self._start()

    def _start(self) -> Run:
        run = Run(self.folder, to_function(self._sent.append), starts=False)
        run.running.start_replay(STANDS_STILL, self._now_ms)
        return run

    def take(self, rows: list[dict[str, Any]]) -> None:
        """Rows of a hand-off, as one piece."""
        if rows:
            self._begin()
            self._is_known &= not any(it["moved_to_ms"] or (it["due_ms"] and not it["payload"]) for it in rows)
            batch = pa.RecordBatch.from_pylist(rows, HANDED)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, HANDED) as writer:
                writer.write_batch(batch)
            self._run.give(*ArrowRows.hand_off(1 << 20).body().add(sink.getvalue().to_pybytes()))
            self._send()

    def put(self, record: dict[str, Any]) -> None:
        """A record that does not come from the hold."""
        self._begin()
        self._recurs = True
        line = json.dumps(record).encode()
        self._run.give(NdjsonLines("", Columns(), 99).read(line, now_ns=self._now_ms * 1_000_000))
        self._send()

    def _begin(self) -> None:
        if self._is_empty:
            self._is_empty = False
            self._open_again()

    def advance_to(self, now_ms: int) -> None:
        self.advance(now_ms - self._now_ms)

    def advance(self, ms: int) -> None:
        if self._is_empty:
            self._now_ms += ms
            return
        self._open_again(ms)
        self._send()

    def _open_again(self, later_ms: int = 0) -> None:
        self.close()
        self._now_ms += later_ms
        with closing(sqlite3.connect(self.folder / "store.db")) as store:
            [[self._put_off_ms]] = store.execute("SELECT min(first_due_ms) FROM moved")
        self._is_known = True
        self._run = self._start()

    def _send(self) -> None:
        """Wait until each due message has its outcome. The commit of an outcome may make an occurrence that is due."""
        is_sent = False
        while not is_sent:
            while self._due():  # the test's own time limit ends this
                time.sleep(0.001)
            if self._recurs:
                self._run.give(Reschedule("no such", None, 0))  # it is answered after that commit
            is_sent = not self._due()

    def _due(self) -> bool:
        return bool(self._run.running.engine.census([self._now_ms], 1)[1] != [0])

    def mark_ms(self) -> int:
        """The mark of all partitions, by the time of this deliverer. Each due message has its outcome, so only messages
        that were put off hold the mark.
        """
        if not self._is_known:
            self._open_again()
        return min(self._now_ms, self._put_off_ms or self._now_ms) - 1

    def copy(self, to: Path) -> "Deliverer":
        """The same with a copy of its store. What it sent is not copied."""
        self.close()
        shutil.copytree(self.folder, to)
        self._run = self._start()
        copied = Deliverer(to, self._now_ms, self._from_ms)
        copied._is_empty = self._is_empty
        return copied

    def close(self) -> None:
        self._run.running.close(LONG_S)

    @property
    def tenants(self) -> list[tuple[str, str | None]]:
        """Id and tenant of what was sent."""
        return [(it.message.id, it.message.tenant) for it in self._sent]

    @property
    def came(self) -> list[tuple[str, int, bool]]:
        """Each delivery: the id, when it was due, and whether it is marked as a repeat."""
        return [(it.message.id, it.message.due_ms - self._from_ms, it.redelivered) for it in self._sent]
