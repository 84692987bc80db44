"""The sending half of a hand-off, in Spark's workers (rule S3): the rows that a task releases go to their deliverers.

Each deliverer has a thread and a connection of its own in the task, so a slow or silent deliverer delays only its own
messages. A deliverer without progress for a while gets no more rows in this micro-batch: its messages stay in the hold.
"""

import queue
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sized
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from tickwheel.spark.client import PASSING, Access, Client, NotTaken, reason_of
from tickwheel.spark.packing import unpack
from tickwheel.spark.schemas import TOLD

_PIECES: Final = 64
_ROWS: Final = 4_000
_BYTES: Final = 16 << 20
_LOOK_EVERY_S: Final = 0.05
_CALL_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Send:
    """A function for `mapInArrow`, from `NEAR` to `TOLD`. `silence_s`: how long one answer may take. `within_s`: how
    long the task waits for deliverers in all.

    Errors: `Refused`, where a deliverer refuses what it gets.
    """

    access: Access
    silence_s: float
    within_s: float
    batch_id: int = 0

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Send all, and tell what became of each shard."""
        senders: dict[tuple[str, str], _Sender] = {}
        visits = []
        try:
            for batch in batches:
                for row in batch.to_pylist():
                    if row["rows"] is None:
                        visits.append(row)
                        continue
                    taker = row["taker"], row["store_id"]
                    if taker not in senders:
                        senders[taker] = _Sender(self, *taker, senders)
                        if _silent.get(taker) == self.batch_id:
                            senders[taker].give_up("it did not answer another task of this micro-batch")
                    senders[taker].put(row["shard"], row["rows"])
            for sender in senders.values():
                sender.end()
            began_s = time.monotonic()
            for sender in senders.values():
                sender.finish(began_s)
            _silent.update({taker: self.batch_id for taker, sender in senders.items() if sender.is_silent})
        finally:
            for sender in senders.values():
                sender.close()
        yield pa.RecordBatch.from_pylist([_told(visit, senders.values()) for visit in visits], _TOLD)


_TOLD: Final = to_arrow_schema(TOLD)
_silent: dict[tuple[str, str], int] = {}
"""Deliverers that did not answer in time, with the last micro-batch in which: the worker's next task does not wait."""


def _told(visit: dict[str, Any], senders: "Iterable[_Sender]") -> dict[str, Any]:
    shard = visit.pop("shard")
    del visit["rows"], visit["store_id"]
    sent = sum(sender.rows_sent[shard] for sender in senders)
    error = next((sender.why for sender in senders if sender.has_left(shard)), None)
    return {"shard": shard, **visit, "sent": sent, "error": error}


class _Sender(threading.Thread):
    """A thread that sends pieces to one deliverer, several together, and waits for each answer."""

    def __init__(self, limits: Send, address: str, store_id: str, all_: Sized) -> None:
        super().__init__(name=f"send-to-{address}", daemon=True)
        self._all = all_
        self.rows_sent: Counter[int] = Counter()
        self.why = ""
        self.is_silent = False
        self._limits = limits
        self._address = address
        self._store_id = store_id
        self._given: Counter[int] = Counter()
        self._taken: Counter[int] = Counter()
        self._pieces: queue.Queue[tuple[int, bytes] | None] = queue.Queue(_PIECES)
        self._waited_s = 0.0
        self._asked_s: float | None = None
        self._over = threading.Event()
        self._fatal: BaseException | None = None
        self._client: Client | None = None
        self.start()

    def has_left(self, shard: int) -> bool:
        """Whether a piece of this shard was not taken."""
        return self._given[shard] > self._taken[shard]

    def put(self, shard: int, piece: bytes) -> None:
        """Send a piece, in the order of calls. Waits while much is to be sent."""
        self._given[shard] += 1
        self._offer((shard, piece))

    def end(self) -> None:
        """Nothing more comes."""
        self._offer(None)

    def finish(self, since_s: float) -> None:
        """Wait until all is sent, or no more can be sent; the task waits since `since_s` for all senders. Errors: the
        refusal of a deliverer.
        """
        waited_s = self._waited_s
        while not self._is_over():
            self._over.wait(_LOOK_EVERY_S)
            self._waited_s = waited_s + time.monotonic() - since_s
        if self._fatal is not None:
            raise self._fatal

    def _offer(self, piece: tuple[int, bytes] | None) -> None:
        while not self._is_over():
            try:
                self._pieces.put(piece, timeout=_LOOK_EVERY_S)
                return
            except queue.Full:
                self._waited_s += _LOOK_EVERY_S

    def _is_over(self) -> bool:
        asked_s = self._asked_s
        silent_s = time.monotonic() - asked_s if asked_s else 0.0
        # Several that are slow have their share of the time each: the task waits for one after the other.
        within_s = max(self._limits.silence_s, self._limits.within_s / max(1, len(self._all)))
        if silent_s > self._limits.silence_s or self._waited_s > within_s:
            self.is_silent = True
            self.give_up(f"no answer for {silent_s:.1f} s, {self._waited_s:.1f} s in all")
        return self._over.is_set()

    def give_up(self, why: str) -> None:
        """Nothing more is sent."""
        self.why = self.why or why
        self.close()

    def close(self) -> None:
        """End the connection, whatever its state, and the thread."""
        self._over.set()
        with suppress(queue.Full):
            self._pieces.put_nowait(None)  # it may wait for a piece
        if self._client is not None:
            self._client.close()

    # --- In the thread --------------------------------------------------------

    def run(self) -> None:
        """Send until all is sent, or something fails."""
        try:
            while not self._over.is_set() and (pieces := self._next()):
                self._send([piece for _, piece in pieces])
                for shard, piece in pieces:
                    self.rows_sent[shard] += unpack(piece).num_rows
                    self._taken[shard] += 1
        except PASSING as error:
            self.why = self.why or reason_of(error)
        except Exception as error:
            self.why, self._fatal = reason_of(error), error
        self.close()

    def _next(self) -> list[tuple[int, bytes]]:
        """The pieces to send now; nothing at the end."""
        pieces: list[tuple[int, bytes]] = []
        rows = size = 0
        while rows < _ROWS and size < _BYTES:
            try:
                found = self._pieces.get(block=not pieces)
            except queue.Empty:
                break
            if found is None:
                self._pieces.put(None)  # nothing comes after it
                break
            pieces.append(found)
            rows, size = rows + unpack(found[1]).num_rows, size + len(found[1])
        return pieces

    def _send(self, pieces: list[bytes]) -> None:
        self._asked_s = time.monotonic()
        if self._client is None:
            self._client = self._limits.access.connect(self._address, _CALL_TIMEOUT_S)
            if self._over.is_set():
                raise NotTaken("it was given up just before")
        self._client.hand_off([pa.concat_batches([unpack(piece) for piece in pieces])], self._store_id)
        self._asked_s = None
