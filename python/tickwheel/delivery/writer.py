"""The one thread that uses the store: it commits in groups whatever has come meanwhile (rule D5).

    submit -> tickets --+                        +--> answers
    senders -> outcomes +--> one transaction --> +--> the window: new entries in, finished ones out
    loader (horizon) ---+                        +--> dead letters

- A ticket is answered after the commit, all of it, in order. What waits for an answer starts a group at once; outcomes
  alone, for which nobody waits, are gathered for 20 ms.
- `gate` holds the senders while two groups of outcomes are uncommitted: one being written, and one that is 50 ms old.
- What a sink has not synced does not count as delivered: `sync` comes before the transaction.
- After an error every ticket gets it, and nothing more is taken. One of the store ends the thread; after one of a sink
  what was delivered before is still committed.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from itertools import chain, groupby
from typing import Final

from tickwheel.delivery.dispatcher import Dispatcher, Settled, TakenBack
from tickwheel.delivery.items import OTHER_CONTENT, Answer, Item, Look, Put, letter_of
from tickwheel.delivery.lateness import Lateness
from tickwheel.delivery.loader import Loader
from tickwheel.delivery.message import Cancel
from tickwheel.delivery.sinks.lines import record_of
from tickwheel.delivery.store import Done, Incoming, Known, Outcome, Store, inputs, letters, meta
from tickwheel.delivery.store.housekeeping import Checkpoints, Housekeeping
from tickwheel.delivery.store.inputs import Progress
from tickwheel.delivery.store.letters import Letter
from tickwheel.delivery.summary import Summary

_GROUP: Final = 600  # items in one transaction, so that it takes well under 50 ms
_QUEUE: Final = 6_000  # items that wait for theirs
_GATHER_S: Final = 0.02
_GROUP_S: Final = 0.05
_ALLOWED: Final = "mend what the reason says, and give the record again under another id"

Ticket = tuple[Sequence[Item], "Future[list[Answer]]"]


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
        self._tickets: list[Ticket] = []
        self._queued = 0
        self._settled: list[Settled] = []
        self._settled_since_s = 0.0
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
        ticket: Future[list[Answer]] = Future()
        ticket.set_running_or_notify_cancel()  # from now on its caller can't cancel it
        with self._changed:
            self._changed.wait_for(lambda: self._queued < _QUEUE or self._failure or self._is_stopping)
            if self._failure is not None:
                raise self._failure
            if self._is_stopping:
                raise RuntimeError("the queue is closed: it takes no more messages")
            self._tickets.append((items, ticket))
            self._queued += len(items)
            self._changed.notify_all()
        return ticket

    def report(self, settled: Sequence[Settled]) -> None:
        """These have their outcome."""
        with self._changed:
            if not self._settled:
                self._settled_since_s = time.monotonic()
                self._changed.notify_all()
            self._settled += settled

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
            tickets, self._tickets = self._tickets, []
            self._changed.notify_all()
        for _, ticket in tickets:
            ticket.set_exception(error)

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
                self.step()
            self.finish()
        except BaseException as error:
            self._fail(error)
        finally:
            self._checkpoints.close()

    def step(self) -> bool:
        """Commit one group; whether there is more to do at once."""
        tickets, settled, position = self._take()
        try:
            return self._commit(tickets, settled, position)
        except BaseException as error:
            for _, ticket in tickets:
                ticket.set_exception(error)
            raise

    def _wait(self) -> bool:
        with self._changed:
            while not self._is_stopping:
                if self._tickets or self._is_woken:
                    return True
                wait_s = self._load_every_s
                if self._settled:
                    wait_s = self._settled_since_s + _GATHER_S - time.monotonic()
                if wait_s <= 0 or not self._changed.wait(wait_s):
                    return True
            return False

    def _take(self) -> tuple[list[Ticket], list[Settled], str | None]:
        with self._changed:
            size = count = 0
            while count < len(self._tickets) and size < _GROUP:
                size += len(self._tickets[count][0])
                count += 1
            tickets, self._tickets = self._tickets[:count], self._tickets[count:]
            settled, self._settled = self._settled, []
            self._queued -= size
            self._is_committing = bool(settled)
            self._is_busy = True
            self._is_woken = False
            self._changed.notify_all()
            return tickets, settled, self._position

    def _commit(self, tickets: Sequence[Ticket], settled: Sequence[Settled], position: str | None) -> bool:
        now_ms = self._wall_ns() // 1_000_000
        unwritten = self._write_letters()
        if settled:
            self._sync()
        group = _Group(self._store, self._dispatcher, now_ms)
        with self._store.transaction():
            if unwritten:
                letters.written(self._store.db, unwritten)
            group.finish(settled)
            answers = [group.apply(items) for items, _ in tickets]
            if position is not None and settled:
                meta.put(self._store.db, "position", position)
            letters.put(self._store.db, group.letters, now_ms)
            entries = self._loader.admit(group.fresh) + self._loader.load()
            more = self._housekeeping.step(now_ms, is_idle=not tickets and not settled)
        self._has_letters = self._has_letters or bool(group.letters)
        if self._checkpoints is not None and (tickets or settled):
            self._checkpoints.after_commit(self._store.db)
        self._committed(settled, group)
        self._dispatcher.place(entries)
        for (_, ticket), answer in zip(tickets, answers, strict=True):
            ticket.set_result(answer)
        more = more or self._loader.is_behind or self._has_letters
        if more:
            self.wake()
        return more

    def _committed(self, settled: Sequence[Settled], group: "_Group") -> None:
        self.summary.add(group.counts)
        for lateness_us in group.lateness_us:
            self.lateness.add(lateness_us)
        with self._dispatcher.lock:
            window = self._dispatcher.window
            for seq in chain((one.done.seq for one in settled), group.taken_back):
                window.forget(seq)
            has_more_room = window.was_full and bool(settled or group.taken_back)
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
        if not self._settled:
            return False
        return time.monotonic() - self._settled_since_s > (_GROUP_S if self._is_committing else 2 * _GROUP_S)

    def finish(self) -> None:
        """The last groups: nothing more is loaded, and what was delivered is committed."""
        self._loader.stop()
        while self._tickets or self._settled or self._has_letters:
            self.step()

    def _is_empty(self) -> bool:
        idle = not (self._tickets or self._settled or self._is_busy or self._has_letters)
        return idle and self._store.waiting == 0


class _Group:
    """What one transaction does for tickets and outcomes; and what has to follow once it is committed."""

    def __init__(self, store: Store, dispatcher: Dispatcher, now_ms: int) -> None:
        self.fresh: dict[int, Incoming] = {}
        self.letters: list[Letter] = []
        self.counts = Summary()
        self.lateness_us: list[int] = []
        self.taken_back: list[int] = []
        self._store = store
        self._dispatcher = dispatcher
        self._now_ms = now_ms

    def apply(self, items: Iterable[Item]) -> list[Answer]:
        """Whatever a ticket asks for, in order; messages that follow each other at once."""
        answers: list[Answer] = []
        for kind, run in groupby(items, type):
            if kind is Put:
                answers += self._accept(list(run))  # type: ignore[arg-type]
            else:
                answers += [answer for item in run if (answer := self._one(item)) is not None]
        return answers

    def finish(self, settled: Sequence[Settled]) -> None:
        """These have their outcome; a dead one becomes a letter."""
        self._store.finish([one.done for one in settled])
        for one in settled:
            if one.done.outcome is Outcome.DELIVERED:
                self.counts.delivered += 1
                self.lateness_us.append(one.done.lateness_us or 0)
            elif one.delivery is not None and one.reason is not None:
                record = record_of(one.delivery.message)
                self.letters.append(Letter("delivery", one.done.seq, one.reason, _ALLOWED, record))
                self.counts.dead_letters += 1
                self.counts.undeliverable += 1

    def _one(self, item: Item) -> Answer | None:
        match item:
            case Cancel():
                return self._cancel(item)
            case Look():
                return self._look(item)
            case Letter():
                self.letters.append(item)
                self.counts.dead_letters += 1
            case Progress():
                inputs.put(self._store.db, item)
        return None

    def _accept(self, puts: Sequence[Put]) -> list[Answer]:
        answers, before = [], len(self.fresh)
        for put, known in zip(puts, self._store.accept([put.incoming for put in puts], self._now_ms), strict=True):
            if isinstance(known, int):
                self.fresh[known] = put.incoming
                answers.append(Answer.ACCEPTED)
            elif known is None:
                self.counts.accepted += 1
                self.counts.cancelled += 1
                answers.append(Answer.CANCELLED)
            else:
                answers.append(self._again(put, known))
        self.counts.accepted += len(self.fresh) - before
        return answers

    def _again(self, put: Put, known: Known) -> Answer:
        if known.content != put.incoming.content:
            if put.record is not None:
                self.letters.append(letter_of(put.record, OTHER_CONTENT))
                self.counts.dead_letters += 1
            return Answer.OTHER_CONTENT
        self.counts.duplicates += 1
        return Answer.DUPLICATE

    def _cancel(self, cancel: Cancel) -> Answer:
        known = self._store.find(cancel.key, cancel.id)
        if known is None:
            self._store.remember_cancel(cancel.key, cancel.id, self._now_ms)
            return Answer.UNKNOWN
        answer = self._state(known)
        if answer is Answer.WAITING:
            if self._dispatcher.take_back(known.seq) in (TakenBack.TAKEN, TakenBack.ABSENT):
                self.fresh.pop(known.seq, None)
                self.taken_back.append(known.seq)
                self._store.finish([Done(known.seq, known.due_ms, Outcome.CANCELLED, self._now_ms)])
                self.counts.cancelled += 1
                return Answer.CANCELLED
            answer = self._state(known)
            if answer is Answer.WAITING:  # it was about to be sent, and would have been early
                answer = Answer.DELIVERING
        if answer is Answer.CANCELLED:
            self.counts.duplicates += 1
        else:
            self.counts.cancels_too_late += 1
        return answer

    def _look(self, look: Look) -> Answer:
        known = self._store.find(look.key, look.id)
        return Answer.UNKNOWN if known is None else self._state(known)

    def _state(self, known: Known) -> Answer:
        if known.outcome is Outcome.CANCELLED:
            return Answer.CANCELLED
        if known.outcome is Outcome.DEAD:
            return Answer.DEAD
        if not self._store.is_waiting(known):
            return Answer.DELIVERED
        return self._dispatcher.state_of(known.seq)
