"""The sinks of one run that write to the same table, and the digests that they may delete (rules D5, D6).

Most messages go through one sink. Keys in doubt may have a second sink, and a new sink replaces one that hangs. Several
threads therefore use these classes. Each thread has its own `Writer`.

- A message has one send at a time. Suppose sink B gets a message while sink A still sends it: then the engine has cut
  off the send of A. A is *replaced*: it writes nothing any more. Otherwise A could write the message again after B has
  written it and forgotten its digest. The engine may also cut off a send of A before it begins.
  Then a later attempt of one of its messages has begun, and A is replaced too.
- A database may still execute statements of a lost connection. `Writer.lost_backends` says which connections these are.
- A digest is needed until the store has committed the message's outcome. A writer knows this by the number of a send
  and not by a clock. If a writer was replaced, the next run deletes its digests.
- One writer at a time deletes digests, so that none waits for another.
"""

import threading
from collections import deque
from collections.abc import Collection, Sequence
from itertools import islice
from typing import Final

from tickwheel.delivery.sinks.sink import Delivery, SinkSettings

_MOST_RETRIED: Final = 10_000

SENDS_AT_ONCE: Final = 2
"""Sends whose digests the next one deletes: it keeps up with sending, and none deletes those of a whole burst."""


class Runs:
    """Knows, for each store, the newest run that uses one opener."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[str, _Run] = {}

    def join(self, settings: SinkSettings) -> "Writer":
        """The writer of a new sink. Writers of an earlier run of this store are replaced."""
        with self._lock:
            run = self._newest.get(settings.store_id)
            if run is None or run.name != settings.run:
                if run is not None:
                    run.is_over = True
                run = self._newest[settings.store_id] = _Run(settings.run)
        return Writer(run)


class _Run:
    """The state that the writers of a run share. `lock` guards it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = threading.Lock()
        self.is_over = False
        self.writers: list[Writer] = []
        self.retried: dict[int, int] = {}  # by seq: the number of the last attempt, from 2
        self.deleter: Writer | None = None
        self.lost: set[int] = set()
        self.has_earlier = True


class Writer:
    """The state of a sink: the messages of its present send, and the digests that it has written.

    >>> from tickwheel.delivery import Message
    >>> a = Delivery(1, Message("a", None, 0, b""), 0, 0, 1, False)
    >>> writer = Runs().join(SinkSettings("store"))
    >>> writer.begin([a])
    >>> writer.note([a])
    >>> writer.end()
    >>> writer.free()
    []
    >>> writer.committed(1, earlier=True)
    >>> writer.free() == [(a.digest, 1)]
    True

    Memory: some 200 bytes for each delivery whose outcome is not committed. Sending pauses while these are two groups.
    """

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._in_hand: frozenset[bytes] = frozenset()
        self._backend: int | None = None
        self._is_replaced = False
        self._sent: deque[tuple[int, Sequence[tuple[bytes, int]]]] = deque()
        self._sends = 0
        self._committed = 0
        self._freed = 0
        self._earlier = False
        with run.lock:
            run.writers.append(self)

    @property
    def is_replaced(self) -> bool:
        """Whether it may not write any more."""
        return self._is_replaced or self._run.is_over

    def begin(self, deliveries: Sequence[Delivery]) -> None:
        """Begin a send of these messages. It replaces other writers that still send some of them."""
        digests = frozenset(it.digest for it in deliveries)
        with self._run.lock:
            self._sends += 1
            if any(self._run.retried.get(it.seq, 0) > it.attempt for it in deliveries):
                self._is_replaced = True
                self._leave()
            if self.is_replaced:
                return
            self._note_retried(deliveries)
            for other in [it for it in self._run.writers if it is not self and not digests.isdisjoint(it._in_hand)]:
                other._is_replaced = True
                other._leave()
            self._in_hand = digests

    def _note_retried(self, deliveries: Sequence[Delivery]) -> None:
        retried = self._run.retried
        for it in deliveries:
            if it.attempt > 1:
                retried.pop(it.seq, None)
                retried[it.seq] = it.attempt
        for seq in [*islice(retried, max(0, len(retried) - _MOST_RETRIED))]:
            del retried[seq]

    def end(self) -> None:
        """The send is over, however it ended."""
        with self._run.lock:
            self._in_hand = frozenset()
            self._end_deleting()

    def close(self) -> None:
        """The sink is closed."""
        with self._run.lock:
            self._leave()

    def _leave(self) -> None:
        self._note_lost()
        self._end_deleting()
        if self in self._run.writers:
            self._run.writers.remove(self)

    # --- Connections ---------------------------------------------------------

    def connects(self, backend: int) -> None:
        """It has a new connection, to this process of the server. Called before anything else may end that process."""
        with self._run.lock:
            self._backend = backend

    def disconnects(self, *, is_lost: bool) -> None:
        """The connection is closed. `is_lost`: the server may still do what it was sent."""
        with self._run.lock:
            if is_lost:
                self._note_lost()
            self._backend = None

    def _note_lost(self) -> None:
        if self._backend is not None:
            self._run.lost.add(self._backend)
            self._backend = None

    def backends(self) -> Sequence[int]:
        """The connections of all writers of the run that are not lost."""
        with self._run.lock:
            return [it._backend for it in self._run.writers if it._backend is not None]

    def lost_backends(self) -> Collection[int]:
        """The connections that were lost or are of replaced writers, and are not known to be over."""
        with self._run.lock:
            return frozenset(self._run.lost)

    def are_over(self, backends: Collection[int]) -> None:
        """These connections do nothing any more."""
        with self._run.lock:
            self._run.lost -= {*backends}

    # --- Digests -------------------------------------------------------------

    def committed(self, sends: int, earlier: bool) -> None:
        """The outcomes of the first `sends` sends are committed. `earlier`: the outcomes of earlier runs too."""
        self._committed = sends
        self._earlier = earlier

    @property
    def has_earlier(self) -> bool:
        """Whether digests that earlier runs have left may be deleted, and some may be there."""
        return self._earlier and self._run.has_earlier

    def no_earlier(self) -> None:
        """All of them are deleted."""
        self._run.has_earlier = False

    def may_delete(self) -> bool:
        """Whether this writer may delete digests until the end of its send."""
        with self._run.lock:
            self._run.deleter = self._run.deleter or self
            return self._run.deleter is self

    def _end_deleting(self) -> None:
        if self._run.deleter is self:
            self._run.deleter = None

    def note(self, deliveries: Sequence[Delivery]) -> None:
        """The send has written these digests, or has found them in the table."""
        sent = [(it.digest, it.first_seq) for it in deliveries]
        with self._run.lock:
            if not self.is_replaced:
                self._sent.append((self._sends, sent))

    def free(self) -> list[tuple[bytes, int]]:
        """Some digests that may be deleted, each with its `first_seq`; the same digests until `forget`."""
        free: list[tuple[bytes, int]] = []
        self._freed = 0
        for send, sent in self._sent:
            if send > self._committed or self._freed == SENDS_AT_ONCE:
                break
            free += sent
            self._freed += 1
        return free

    def forget(self) -> None:
        """The digests that `free` returned last are deleted, and the deletion is committed."""
        for _ in range(self._freed):
            self._sent.popleft()
        self._freed = 0
