"""From the timer to the senders and back (rules D3, D4, D6): what is due, in order per key, one of a key at a time.

    place -> timer -> release -> ready -> take -> stamp -> (the sink) -> settle -> outcomes
                 ^                                                         |
                 +------------------ retry, by back-off -------------------+

- A timer's release says that something of a lane is due; what goes out is always the lane's first. So order needs no
  care of the timer's, and a message that was accepted late goes before what is due after it.
- Right before the send the clock is read again. What would be early, as the wall clock was stepped back, goes back on
  the timer, and with it all that waits.
- One lock guards the window. Under it the timer is called, which calls nobody back from `at`; never the sink.
- Called by the timer's thread (`_release`, `_retry`), the senders' (`take` to `settle`), and the writer's (the rest).
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from queue import Empty, SimpleQueue

import msgspec

from tickwheel import Timer, TimerClosed
from tickwheel.delivery.clock import DueClock
from tickwheel.delivery.items import Answer
from tickwheel.delivery.retry import Retry
from tickwheel.delivery.sinks import Delivery
from tickwheel.delivery.sinks.sink import Refusals
from tickwheel.delivery.store import Done, Outcome
from tickwheel.delivery.window import Entry, Lane, State, Window

_MS = 1_000_000
_US = 1_000


class TakenBack(Enum):
    """What is known of a message whose cancel came."""

    TAKEN = auto()  # it does not go out
    FLYING = auto()  # it is being sent, or was tried
    OVER = auto()  # it has its outcome, which may not be committed yet
    ABSENT = auto()  # not in memory


class Settled(msgspec.Struct, frozen=True, gc=False):
    """An outcome, and for a dead letter the reason and the message."""

    done: Done
    reason: str | None = None
    delivery: Delivery | None = None


class Dispatcher:
    """`report` gets every outcome, from the senders' threads; `wake` is called where the writer has lanes to refill."""

    def __init__(
        self,
        timer: Timer,
        window: Window,
        retry: Retry,
        *,
        report: Callable[[Sequence[Settled]], None],
        wake: Callable[[], None],
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.lock = threading.Lock()
        self.window = window
        self._timer = timer
        self._retry_policy = retry
        self._report = report
        self._wake = wake
        self._wall_ns = wall_ns
        self._clock: DueClock | None = None
        self._is_halted = False
        self._ready: SimpleQueue[Entry | Lane | None] = SimpleQueue()

    # --- The writer's side ---------------------------------------------------

    def start(self, clock: DueClock) -> None:
        """From now on things are due, by this clock."""
        self._clock = clock

    def place(self, entries: Iterable[Entry]) -> None:
        """These are committed: put them on the timer."""
        with self.lock:
            self._place([entry for entry in entries if entry.state is State.HELD])

    def take_back(self, seq: int) -> TakenBack:
        """Keep a message from going out, if that is certain."""
        with self.lock:
            entry = self.window.get(seq)
            if entry is None:
                return TakenBack.ABSENT
            if entry.state is State.OVER:
                return TakenBack.OVER
            if entry.state not in (State.HELD, State.WAITING, State.READY) or entry.attempt:
                return TakenBack.FLYING
            self.discard(entry)
            self.window.land(entry)
            if entry.lane is not None:
                self._offer(entry.lane)  # the next one may have been released already
            return TakenBack.TAKEN

    def state_of(self, seq: int) -> Answer:
        """Of a message that has no outcome in the store."""
        with self.lock:
            entry = self.window.get(seq)
            if entry is None:
                return Answer.WAITING
            if entry.state is State.OVER:
                return Answer.DELIVERED if entry.outcome is Outcome.DELIVERED else Answer.DEAD
            is_ready = entry.state in (State.HELD, State.WAITING, State.READY)
            return Answer.WAITING if is_ready and not entry.attempt else Answer.DELIVERING

    def discard(self, entry: Entry) -> None:
        """Off the timer; with the lock held."""
        if entry.task is not None:
            entry.task.cancel()
            entry.task = None

    def clock_was_stepped(self) -> bool:
        """Whether the wall clock was; then all that waits has been placed anew."""
        assert self._clock is not None
        if not self._clock.was_stepped():
            return False
        self._place_again()
        return True

    def halt(self) -> None:
        """Let nothing more be taken."""
        self._is_halted = True
        self._ready.put(None)

    def stop(self, senders: int) -> None:
        """Wake so many senders for the last time."""
        for _ in range(senders):
            self._ready.put(None)

    # --- The timer's side ----------------------------------------------------

    def _release(self, entry: Entry) -> None:
        with self.lock:  # waits until `_place` has noted the task
            entry.task = None
            if entry.state is not State.WAITING:
                return
            lane = entry.lane
            if lane is None:
                entry.state = State.READY
                self._ready.put(entry)
            else:
                lane.due_until_ms = max(lane.due_until_ms, entry.due_ms)
                self._offer(lane)

    def _retry(self, entry: Entry) -> None:
        with self.lock:
            entry.state = State.READY
            self._ready.put(entry)

    # --- The senders' side ---------------------------------------------------

    def take(self, most: int, *, wait: bool = True) -> list[Entry] | None:
        """The next to be sent, at most so many; `None` at the end, and where nothing is ready and `wait` is false."""
        while True:
            try:
                ready = self._ready.get(wait)
            except Empty:
                return None
            taken: list[Entry] = []
            with self.lock:
                while ready is not None:
                    self._fly(ready, taken)
                    if len(taken) == most:
                        break
                    try:
                        ready = self._ready.get_nowait()
                    except Empty:
                        break
                else:
                    if not taken:
                        if self._is_halted:
                            self._ready.put(None)
                        return None
                    self._ready.put(None)  # what was taken goes out first
            if self._is_halted:
                self._ready.put(None)  # for the next sender
                return None
            if taken:
                return taken

    def stamp(self, entries: Sequence[Entry]) -> list[Delivery]:
        """The deliveries of those that are due by now, in order; the others are put back."""
        assert self._clock is not None
        deliveries, early = [], []
        for entry in entries:
            wall_ns = self._wall_ns()
            late_ns = self._clock.late_ns(entry.due_ms, wall_ns)
            if late_ns < 0:
                early.append(entry)
                continue
            assert entry.message is not None
            entry.attempt += 1
            late_ms = round(late_ns / _US) / 1000  # whole microseconds, so that all who round it agree
            deliveries.append(
                Delivery(entry.seq, entry.message, wall_ns // _MS, late_ms, entry.attempt, entry.redelivered)
            )
        if early:
            self._put_back(early)
        return deliveries

    def settle(self, deliveries: Sequence[Delivery], refusals: Refusals) -> None:
        """The sink has answered: these have arrived, except for those refused."""
        settled: list[Settled] = []
        with self.lock:
            for place, delivery in enumerate(deliveries):
                entry = self.window.get(delivery.seq)
                assert entry is not None
                reason = refusals.get(place)
                if reason is None:
                    settled.append(Settled(self._done(delivery, Outcome.DELIVERED)))
                elif delivery.attempt >= self._retry_policy.max_attempts:
                    reason = f"gave up after {delivery.attempt} attempts: {reason}"
                    settled.append(Settled(self._done(delivery, Outcome.DEAD), reason, delivery))
                else:
                    entry.state = State.RETRYING
                    self._after(self._retry_policy.delay_ms(delivery.attempt), self._retry, entry)
                    continue
                entry.outcome = settled[-1].done.outcome
                self.window.land(entry)
                if entry.lane is not None:
                    self._offer(entry.lane)
            needy = bool(self.window.needy)
        if settled:
            self._report(settled)
        if needy:
            self._wake()

    # --- All with the lock held ----------------------------------------------

    def _place(self, entries: Iterable[Entry]) -> None:
        at, release = self._timer.at, self._release
        with contextlib.suppress(TimerClosed):  # then they are not sent, and stay in the store
            for entry in entries:
                assert self._clock is not None
                entry.state = State.WAITING
                entry.task = at(self._clock.instant_ms(entry.due_ms), release, entry)

    def _after(self, delay_ms: float, callback: Callable[[Entry], object], entry: Entry) -> None:
        with contextlib.suppress(TimerClosed):
            self._timer.after(delay_ms, callback, entry)

    def _offer(self, lane: Lane) -> None:
        if lane.flying is not None or lane.is_offered:
            return
        first = lane.first()
        if first is not None and first.due_ms <= lane.due_until_ms and first.state is State.WAITING:
            lane.is_offered = True
            self._ready.put(lane)

    def _fly(self, ready: Entry | Lane, taken: list[Entry]) -> None:
        if isinstance(ready, Entry):
            entry = ready
            if entry.state is not State.READY:
                return
        else:
            ready.is_offered = False
            first = self.window.take(ready)
            if first is None:
                return
            entry = first
            if entry.task is not None:
                self.discard(entry)
        entry.state = State.SENDING
        taken.append(entry)

    def _done(self, delivery: Delivery, outcome: Outcome) -> Done:
        lateness_us = round(delivery.lateness_ms * 1000) if outcome is Outcome.DELIVERED else None
        return Done(
            delivery.seq,
            delivery.message.due_ms,
            outcome,
            delivery.delivered_at_ms,
            lateness_us,
            delivery.attempt,
            delivery.redelivered,
        )

    # --- Steps of the wall clock ---------------------------------------------

    def _put_back(self, early: Iterable[Entry]) -> None:
        with self.lock:
            for entry in early:
                entry.state = State.WAITING
                self.window.put_back(entry)
        self._place_again()

    def _place_again(self) -> None:
        assert self._clock is not None
        with self.lock:
            self._clock.read_again()
            for lane in self.window.lanes():
                lane.due_until_ms = -1
            again = []
            for entry in self.window:
                if entry.state is State.WAITING:
                    self.discard(entry)
                    again.append(entry)
            self._place(again)
