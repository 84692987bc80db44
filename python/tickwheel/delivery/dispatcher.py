"""From the timer to the senders and back (rules D3, D4, D6): what is due, in order per key, one of a key at a time.

    place -> agenda -> timer -> told -> take -> stamp -> (the sink) -> settle -> outcomes
                         ^               |  ^                             |
                         |            offered: what is due by now         |
                         +-------------- retry, by back-off --------------+

- The timer's thread only says which moment has come; the sender that hears it first works out what is due. What goes
  out of a lane is always its first. So order needs no care of the timer's, and a message that was accepted late goes
  before what is due after it.
- Right before the send the clock is read again. What would be early, as the wall clock was stepped back, goes back on
  the timer, and with it all that waits.
- One lock guards the window and the agenda. Under it the timer is called, which calls nobody back; never the sink.
- Called by the senders' threads (`take` to `settle`), and the writer's (the rest).
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from queue import Empty, SimpleQueue

from tickwheel import Timer, TimerClosed
from tickwheel.delivery.agenda import Agenda
from tickwheel.delivery.clock import DueClock
from tickwheel.delivery.items import Answer, letter_of_delivery
from tickwheel.delivery.lanes import HELD, OVER, READY, RETRYING, SENDING, WAITING
from tickwheel.delivery.retry import Retry
from tickwheel.delivery.sinks import Delivery
from tickwheel.delivery.sinks.sink import Refusals
from tickwheel.delivery.store import Done, Outcome
from tickwheel.delivery.store.letters import Letter
from tickwheel.delivery.window import Entry, Lane, Window

_MS = 1_000_000
_US = 1_000
_FEW = 4


class TakenBack(Enum):
    """What is known of a message whose cancel came."""

    TAKEN = auto()  # it does not go out
    FLYING = auto()  # it is being sent, or was tried
    OVER = auto()  # it has its outcome, which may not be committed yet
    ABSENT = auto()  # not in memory


class _Word(Enum):
    """What senders are told."""

    OFFERED = auto()  # there is something to take
    END = auto()


class Dispatcher:
    """`report` gets every outcome, and the letters of the dead, from the senders' threads; `wake` is called where the
    writer has lanes to refill.
    """

    def __init__(
        self,
        timer: Timer,
        window: Window,
        retry: Retry,
        *,
        report: Callable[[Sequence[Done], Sequence[Letter]], None],
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
        self._told: SimpleQueue[int | Entry | _Word] = SimpleQueue()  # due times that have come; what is tried again
        self._offered: deque[Entry | Lane] = deque()  # due by now
        self._is_told = False  # that something is offered
        self._agenda = Agenda(timer, self._told.put)

    # --- The writer's side ---------------------------------------------------

    def start(self, clock: DueClock) -> None:
        """From now on things are due, by this clock."""
        self._clock = clock

    def place(self, entries: Iterable[Entry]) -> None:
        """These are committed: put them on the timer."""
        with self.lock:
            self._place([entry for entry in entries if entry.state is HELD])

    def take_back(self, seq: int) -> TakenBack:
        """Keep a message from going out, if that is certain."""
        with self.lock:
            entry = self.window.get(seq)
            if entry is None:
                return TakenBack.ABSENT
            if entry.state is OVER:
                return TakenBack.OVER
            if entry.state not in (HELD, WAITING, READY) or entry.attempt:
                return TakenBack.FLYING
            self.discard(entry)
            self.window.land(entry)
            if entry.lane is not None:
                self._offer(entry.lane)  # the next one may have been released already
                self._tell()
            return TakenBack.TAKEN

    def state_of(self, seq: int) -> Answer:
        """Of a message that has no outcome in the store."""
        with self.lock:
            entry = self.window.get(seq)
            if entry is None:
                return Answer.WAITING
            if entry.state is OVER:
                return Answer.DELIVERED if entry.outcome is Outcome.DELIVERED else Answer.DEAD
            is_ready = entry.state in (HELD, WAITING, READY)
            return Answer.WAITING if is_ready and not entry.attempt else Answer.DELIVERING

    def discard(self, entry: Entry) -> None:
        """Off the timer; with the lock held."""
        self._agenda.remove(entry)

    def clock_was_stepped(self) -> bool:
        """Whether the wall clock was; then all that waits has been placed anew."""
        assert self._clock is not None
        if not self._clock.was_stepped():
            return False
        self._place_again()
        return True

    @property
    def is_behind(self) -> bool:
        """Whether a few moments have come that no sender has heard of yet."""
        return self._told.qsize() > _FEW

    def halt(self) -> None:
        """Let nothing more be taken."""
        self._is_halted = True
        self._told.put(_Word.END)

    def stop(self, senders: int) -> None:
        """Wake so many senders for the last time."""
        for _ in range(senders):
            self._told.put(_Word.END)

    # --- The senders' side ---------------------------------------------------

    def take(self, most: int, *, wait: bool = True) -> list[Entry] | None:
        """The next to be sent, at most so many; `None` at the end, and where nothing is ready and `wait` is false."""
        while True:
            try:
                told = self._told.get(wait)
            except Empty:
                return None
            with self.lock:
                taken = self._take(told, most)
            if self._is_halted:
                self._told.put(_Word.END)  # for the next sender
                return None
            if taken is None or taken:
                return taken

    def stamp(self, entries: Sequence[Entry]) -> list[Delivery]:
        """The deliveries of those that are due by now, in order; the others are put back."""
        assert self._clock is not None
        read_wall_ns, late = self._wall_ns, self._clock.late_ns
        deliveries, early = [], []
        for entry in entries:
            wall_ns = read_wall_ns()
            late_ns = late(entry.due_ms, wall_ns)
            if late_ns < 0:
                early.append(entry)
                continue
            assert entry.message is not None
            entry.attempt = attempt = entry.attempt + 1
            deliveries.append(
                Delivery(entry.seq, entry.message, wall_ns // _MS, late_ns // _US, attempt, entry.redelivered)
            )
        if early:
            self._put_back(early)
        return deliveries

    def settle(self, deliveries: Sequence[Delivery], refusals: Refusals) -> None:
        """The sink has answered: these have arrived, except for those refused."""
        window, delivered, dead = self.window, Outcome.DELIVERED, Outcome.DEAD
        done: list[Done] = []
        given_up: list[tuple[Delivery, str]] = []
        with self.lock:
            for place, it in enumerate(deliveries):
                entry = window.get(it.seq)
                assert entry is not None
                outcome = delivered
                lateness_us: int | None = it.lateness_us
                if refusals and (reason := refusals.get(place)) is not None:
                    if it.attempt < self._retry_policy.max_attempts:
                        entry.state = RETRYING
                        self._try_again(entry)
                        continue
                    outcome, lateness_us = dead, None
                    given_up.append((it, reason))
                due_ms, at_ms = it.message.due_ms, it.delivered_at_ms
                done.append(Done(it.seq, due_ms, outcome, at_ms, lateness_us, it.attempt, it.redelivered))
                entry.outcome = outcome
                window.land(entry)
                if entry.lane is not None:
                    self._offer(entry.lane)
            self._tell()
            needy = bool(window.needy)
        if done:
            self._report(done, [letter_of_delivery(delivery, reason) for delivery, reason in given_up])
        if needy:
            self._wake()

    # --- All with the lock held ----------------------------------------------

    def _place(self, entries: Sequence[Entry]) -> None:
        if entries:
            assert self._clock is not None
            for entry in entries:
                entry.state = WAITING
            with contextlib.suppress(TimerClosed):  # then they are not sent, and stay in the store
                self._agenda.add(entries, self._clock)

    def _try_again(self, entry: Entry) -> None:
        with contextlib.suppress(TimerClosed):
            self._timer.after(self._retry_policy.delay_ms(entry.attempt), self._told.put, entry)

    def _release(self, due_ms: int) -> None:
        """A moment has come: what is due goes out, or its lane's first does."""
        for entry in self._agenda.take(due_ms):
            lane = entry.lane
            if lane is None:
                entry.state = READY
                self._offered.append(entry)
            else:
                if due_ms > lane.due_until_ms:
                    lane.due_until_ms = due_ms
                self._offer(lane)

    def _offer(self, lane: Lane) -> None:
        if lane.flying is not None or lane.is_offered:
            return
        first = lane.first()
        if first is not None and first.due_ms <= lane.due_until_ms and first.state is WAITING:
            lane.is_offered = True
            self._offered.append(lane)

    def _tell(self) -> None:
        if self._offered and not self._is_told:
            self._is_told = True
            self._told.put(_Word.OFFERED)

    def _take(self, told: "int | Entry | _Word", most: int) -> list[Entry] | None:
        """What can be sent by now; `None` at the end."""
        offered, end = _Word.OFFERED, _Word.END
        taken: list[Entry] = []
        while True:
            if isinstance(told, int):
                self._release(told)
            elif isinstance(told, Entry):
                self._offered.append(told)
            elif told is offered:
                self._is_told = False
            while self._offered and len(taken) < most:
                entry = self._fly(self._offered.popleft())
                if entry is not None:
                    entry.state = SENDING
                    taken.append(entry)
            if told is end or len(taken) == most:
                break
            try:
                told = self._told.get_nowait()
            except Empty:
                break
        self._tell()
        if told is end:
            if not taken:
                return None
            self._told.put(told)  # what was taken goes out first
        return taken

    def _fly(self, offered: Entry | Lane) -> Entry | None:
        if isinstance(offered, Entry):
            return offered if offered.state in (READY, RETRYING) else None
        offered.is_offered = False
        entry = self.window.take(offered)
        if entry is not None:
            self._agenda.remove(entry)  # where it came late, and goes out with what is due by now
        return entry

    # --- Steps of the wall clock ---------------------------------------------

    def _put_back(self, early: Iterable[Entry]) -> None:
        with self.lock:
            for entry in early:
                entry.state = WAITING
                self.window.put_back(entry)
        self._place_again()

    def _place_again(self) -> None:
        assert self._clock is not None
        with self.lock:
            self._clock.read_again()
            for lane in self.window.lanes():
                lane.due_until_ms = -1
            self._agenda.clear()
            self._place([entry for entry in self.window if entry.state is WAITING])
