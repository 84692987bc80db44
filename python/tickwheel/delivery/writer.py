"""The one thread that uses the store: it commits in groups whatever has come meanwhile (rule D5).

    submit -> tickets --+                        +--> answers
    senders -> outcomes +--> one transaction --> +--> the window: new entries in, finished ones out
    loader (horizon) ---+                        +--> dead letters

- A ticket is answered after the commit, all of it, in order; a large one after several. What waits for an answer
  starts a group at once; outcomes alone, for which nobody waits, are gathered for 20 ms.
- What was accepted is delivered in time before more is accepted: while the senders are behind, groups give way to them,
  20 ms each at most, as what they wait for may be the destination.
- `gate` holds the senders while two groups of outcomes are uncommitted: one being written, and one that is 50 ms old;
  and while one has been written for 10 s, as SQL sinks forget what they were sent a minute ago.
- What a sink has not synced does not count as delivered: `sync` comes before the transaction.
- After an error every ticket gets it, and nothing more is taken. One of the store ends the thread; after one of a sink
  what was delivered before is still committed.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final

from tickwheel.delivery.dispatcher import Dispatcher
from tickwheel.delivery.group import Group
from tickwheel.delivery.items import Answer, Item
from tickwheel.delivery.lateness import Lateness
from tickwheel.delivery.loader import Loader
from tickwheel.delivery.store import Done, Store, letters, meta
from tickwheel.delivery.store.housekeeping import Checkpoints, Housekeeping
from tickwheel.delivery.store.letters import Letter
from tickwheel.delivery.summary import Summary

_GROUP: Final = 192  # items in one transaction: senders share the interpreter with it, and a long one makes them late
_QUEUE: Final = 6_000  # items that wait for theirs
_GATHER_S: Final = 0.02
_GIVE_WAY_S: Final = 0.02
_GROUP_S: Final = 0.05
_STUCK_S: Final = 10.0


class _Ticket:
    """What was handed in together, and the answers so far."""

    __slots__ = ("_taken", "answers", "future", "items")

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.answers: list[Answer] = []
        self.future: Future[list[Answer]] = Future()
        self.future.set_running_or_notify_cancel()  # from now on its caller can't cancel it
        self._taken = 0

    def take(self, most: int) -> Sequence[Item]:
        """The next of them."""
        part = self.items[self._taken : self._taken + most]
        self._taken += len(part)
        return part

    @property
    def is_taken(self) -> bool:
        """Whether that was all."""
        return self._taken == len(self.items)


class Writer:
    """`step` is one group; `run` goes on until `stop`."""

    def __init__(
        self,
        store: Store,
        dispatcher: Dispatcher,
        loader: Loader,
        housekeeping: Housekeeping,
        *,
        sync: Callable[[], None],
        put_letters: Callable[[Sequence[Letter]], None],
        fail: Callable[[BaseException], None],
        load_every_s: float,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.summary = Summary()
        self.lateness = Lateness()
        self.first_due_ms: int | None = store.first_due_ms()
        """Of what waits, until the loader is started."""
        self._store = store
        self._dispatcher = dispatcher
        self._loader = loader
        self._housekeeping = housekeeping
        self._sync = sync
        self._put_letters = put_letters
        self._fail = fail
        self._load_every_s = load_every_s
        self._wall_ns = wall_ns
        self._changed = threading.Condition()  # guards all below
        self._tickets: deque[_Ticket] = deque()
        self._begun: _Ticket | None = None  # the writer's own: what is left of it comes first
        self._queued = 0
        self._done: list[Done] = []
        self._dead: list[Letter] = []
        self._done_since_s = 0.0
        self._committing_since_s = 0.0
        self._is_giving_way = False
        self._position: str | None = None
        self._is_committing = False  # outcomes
        self._is_busy = False  # anything
        self._is_woken = True
        self._is_stopping = False
        self._failure: BaseException | None = None
        self._checkpoints: Checkpoints | None = None
        self._has_letters = True

    # --- From other threads --------------------------------------------------

    def submit(self, items: Sequence[Item]) -> "Future[list[Answer]]":
        """Take these; answers to messages, cancels and looks come after the commit. Waits while much is queued."""
        ticket = _Ticket(items)
        with self._changed:
            self._changed.wait_for(lambda: self._queued < _QUEUE or self._failure or self._is_stopping)
            if self._failure is not None:
                raise self._failure
            if self._is_stopping:
                raise RuntimeError("the queue is closed: it takes no more messages")
            self._tickets.append(ticket)
            self._queued += len(items)
            self._changed.notify_all()
        return ticket.future

    def report(self, done: Sequence[Done], dead: Sequence[Letter] = ()) -> None:
        """These have their outcome; the dead among them have a letter each."""
        with self._changed:
            if not self._done:
                self._done_since_s = time.monotonic()
                self._changed.notify_all()
            elif self._is_giving_way:
                self._changed.notify_all()
            self._done += done
            self._dead += dead

    def note_position(self, position: str | None) -> None:
        """How far the destination was when all that is reported by now had arrived."""
        self._position = position

    def gate(self) -> bool:
        """Wait while too much is uncommitted; `False` if nothing will be committed any more."""
        if self._is_behind():
            with self._changed:
                self._changed.wait_for(lambda: not self._is_behind() or self._failure)
        return self._failure is None

    def wake(self) -> None:
        """There is something to load."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def wait_until_empty(self, timeout_s: float) -> bool:
        """Whether nothing waits, or everything failed, within that time."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: self._failure or self._is_empty(), timeout_s))

    def fail(self, error: BaseException) -> None:
        """Take nothing more; who waits for an answer gets the error."""
        with self._changed:
            self._failure = self._failure or error
            tickets, self._tickets = self._tickets, deque()
            self._changed.notify_all()
        for ticket in tickets:
            ticket.future.set_exception(error)

    def stop(self) -> None:
        """Commit what there is, and end `run`."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()

    # --- The writer's thread -------------------------------------------------

    def run(self) -> None:
        """Until `stop`, or an error, which goes to `fail`."""
        self._checkpoints = Checkpoints(self._store.path)
        try:
            while self._wait():
                self._give_way()
                self.step()
            self.finish()
        except BaseException as error:
            self._fail(error)
        finally:
            self._checkpoints.close()

    def step(self) -> bool:
        """Commit one group; whether there is more to do at once."""
        group = self._take()
        try:
            return self._commit(*group)
        except BaseException as error:
            self._begun = None
            for ticket, _ in group[0]:
                ticket.future.set_exception(error)
            raise

    def _wait(self) -> bool:
        with self._changed:
            while not self._is_stopping:
                if self._tickets or self._begun or self._is_woken:
                    return True
                wait_s = self._load_every_s
                if self._done:
                    wait_s = self._done_since_s + _GATHER_S - time.monotonic()
                if wait_s <= 0 or not self._changed.wait(wait_s):
                    return True
            return False

    def _give_way(self) -> None:
        with self._changed:
            self._is_giving_way = True
            self._changed.wait_for(lambda: not self._dispatcher.is_behind or self._is_stopping, _GIVE_WAY_S)
            self._is_giving_way = False

    def _take(self) -> tuple[list[tuple[_Ticket, Sequence[Item]]], list[Done], list[Letter], str | None]:
        """What goes into one group: parts of tickets; outcomes, and the letters of the dead; the sink's position."""
        with self._changed:
            parts = []
            size = 0
            while size < _GROUP and (ticket := self._begun or (self._tickets.popleft() if self._tickets else None)):
                part = ticket.take(_GROUP - size)
                parts.append((ticket, part))
                size += len(part)
                self._begun = None if ticket.is_taken else ticket
            done, self._done = self._done, []
            dead, self._dead = self._dead, []
            self._queued -= size
            self._is_committing = bool(done)
            self._committing_since_s = time.monotonic()
            self._is_busy = True
            self._is_woken = False
            self._changed.notify_all()
            return parts, done, dead, self._position

    def _commit(
        self,
        parts: Sequence[tuple[_Ticket, Sequence[Item]]],
        done: Sequence[Done],
        dead: Sequence[Letter],
        position: str | None,
    ) -> bool:
        now_ms = self._wall_ns() // 1_000_000
        unwritten = self._write_letters()
        if done:
            self._sync()
        group = Group(self._store, self._dispatcher, now_ms)
        with self._store.transaction():
            if unwritten:
                letters.written(self._store.db, unwritten)
            group.finish(done, dead)
            for ticket, items in parts:
                ticket.answers += group.apply(items)
            if position is not None and done:
                meta.put(self._store.db, "position", position)
            letters.put(self._store.db, group.letters, now_ms)
            entries = self._loader.admit(group.fresh) + self._loader.load()
            more = self._housekeeping.step(now_ms, is_idle=not parts and not done)
        self._has_letters = self._has_letters or bool(group.letters)
        if self._checkpoints is not None and (parts or done):
            self._checkpoints.after_commit(self._store.db)
        self._committed(done, group)
        self._dispatcher.place(entries)
        for ticket, _ in parts:
            if ticket.is_taken:
                ticket.future.set_result(ticket.answers)
        more = more or self._loader.is_behind or self._has_letters
        if more:
            self.wake()
        return more or self._begun is not None

    def _committed(self, done: Sequence[Done], group: Group) -> None:
        self.summary.add(group.counts)
        self.lateness.add(group.lateness_us)
        over = [*(one.seq for one in done), *group.taken_back]
        with self._dispatcher.lock:
            window = self._dispatcher.window
            window.forget(over)
            has_more_room = window.was_full and bool(over)
        if not self._loader.has_started:
            self.first_due_ms = self._store.first_due_ms()
        with self._changed:
            self._is_committing = self._is_busy = False
            self._is_woken = self._is_woken or has_more_room
            self._changed.notify_all()

    def _write_letters(self) -> int | None:
        """Write out what an earlier transaction holds; up to which number that is."""
        if not self._has_letters:
            return None
        found, through = letters.unwritten(self._store.db)
        self._has_letters = bool(found)
        if not found:
            return None
        self._put_letters(found)
        return through

    def _is_behind(self) -> bool:
        now_s = time.monotonic()
        if self._is_committing and now_s - self._committing_since_s > _STUCK_S:
            return True
        return bool(self._done) and now_s - self._done_since_s > (_GROUP_S if self._is_committing else 2 * _GROUP_S)

    def finish(self) -> None:
        """The last groups: nothing more is loaded, and what was delivered is committed."""
        self._loader.stop()
        while self._tickets or self._begun or self._done or self._has_letters:
            self.step()

    def _is_empty(self) -> bool:
        idle = not (self._tickets or self._begun or self._done or self._is_busy or self._has_letters)
        return idle and self._store.waiting == 0
