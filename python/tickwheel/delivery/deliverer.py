"""The heart: an accepted message waits on the timer until it is due, and then goes to the sink.

    accept -> register -> timer -> (due) release -> group -> send -> sink

- Order (D4): instants on the timer keep the order of due times, and the timer keeps `(due, acceptance)`.
- Never early (D3): right before the send the clock is read again. What would be early, as the wall clock was stepped
  back, goes back on the timer, and with it all that waits, in order of acceptance. Once a second the clock is looked at
  for steps forward.
- What is due at one moment is one write: the first release asks the timer for a `send` that is due now, and the timer
  runs it after all that was due before.
- A message counts as delivered when the sink's `send` has returned. After a failed one nothing more is sent.
- One lock guards register, clock and counts. Under it the timer is called, never the sink; the timer calls nobody
  back from `at`. `_group` belongs to the timer's executor, and to `close` once the timer is shut down.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Sequence

from tickwheel import Timer, TimerClosed
from tickwheel.delivery.clock import DueClock
from tickwheel.delivery.errors import DeliveryFailed
from tickwheel.delivery.message import Cancel, Message
from tickwheel.delivery.register import Entry, Outcome, Register
from tickwheel.delivery.sinks import Delivery, Sink
from tickwheel.delivery.summary import Summary

_GROUP = 64  # messages in one send, so that the last one's time of sending is not stale
_WATCH_MS = 1000


class Deliverer:
    """Delivers by `timer`, which it alone uses, to `sink`; both are closed by `close`. Any thread may call it.

    `start` gives it the clock. What is accepted before that waits for it; what comes later goes on the timer at once.
    """

    def __init__(self, timer: Timer, sink: Sink, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self.summary = Summary()
        self._timer = timer
        self._sink = sink
        self._wall_ns = wall_ns
        self._clock: DueClock | None = None
        self._register = Register()
        self._group: list[Entry] = []
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._end_of_input = False
        self._failure: BaseException | None = None

    def start(self, clock: DueClock) -> None:
        """From now on things are due, by this clock."""
        with self._changed:
            self._clock = clock
            self._place(clock, sorted(self._register.waiting(), key=lambda entry: entry.message.due_ms))
        self._after(_WATCH_MS, self._watch)

    def accept(self, message: Message) -> None:
        """Take a message. Errors: `BadRecord` if `(key, id)` is known with other content."""
        with self._changed:
            accepted = self._register.accept(message)
            if accepted is None:
                self.summary.duplicates += 1
                return
            self.summary.accepted += 1
            if isinstance(accepted, Outcome):
                self.summary.cancelled += 1
            elif self._clock is not None:
                self._place(self._clock, [accepted])

    def cancel(self, cancel: Cancel) -> None:
        """Cancel a message, or remember to (D7); the answer is in the counts."""
        with self._changed:
            found = self._register.find(cancel)
            if found is None:
                return
            if found is Outcome.CANCELLED:
                self.summary.duplicates += 1
            elif isinstance(found, Entry) and self._take_back(found):
                self._register.finish(found, Outcome.CANCELLED)
                self.summary.cancelled += 1
                self._changed.notify_all()
            else:
                self.summary.cancels_too_late += 1

    def first_due_ms(self) -> int | None:
        """The earliest due time that waits; `None` if nothing does. O(waiting)."""
        with self._changed:
            return min((entry.message.due_ms for entry in self._register.waiting()), default=None)

    def end_of_input(self) -> None:
        """No more will be accepted: `wait` may end."""
        with self._changed:
            self._end_of_input = True
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Send nothing more; `wait` raises `error`. The first call counts."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> bool:
        """Whether the input has ended and all is delivered, within that time. Raises what `fail` was given."""
        with self._changed:
            done = self._changed.wait_for(self._is_over, timeout_s)
            if self._failure is not None:
                raise self._failure
            return done

    def close(self, timeout_ms: float | None = None) -> None:
        """Send what is due by now, and stop.

        `timeout_ms` bounds the wait for a sink that hangs; what is in its hands then counts as not delivered.
        Errors: `DeliveryFailed`.
        """
        self._timer.shutdown(timeout_ms)
        with self._changed:
            self.summary.cancels_unknown = self._register.unknown_cancels
        if self._sending.acquire(blocking=False):
            self._send_group()
            self._sending.release()
            self._close_sink()

    def not_delivered(self) -> list[Message]:
        """What was accepted and has no outcome, in order of acceptance."""
        with self._changed:
            return [entry.message for entry in self._register.waiting()]

    def _is_over(self) -> bool:
        return self._failure is not None or (self._end_of_input and not self.summary.not_delivered)

    def _place(self, clock: DueClock, entries: Sequence[Entry]) -> None:
        with contextlib.suppress(TimerClosed):  # then they are not delivered, and `close` says so
            for entry in entries:
                entry.task = self._timer.at(clock.instant_ms(entry.message.due_ms), self._release, entry)

    def _take_back(self, entry: Entry) -> bool:
        """Whether it is certain that it does not go out."""
        return self._clock is None if entry.task is None else entry.task.cancel()

    def _after(self, delay_ms: float, callback: Callable[[], object]) -> None:
        with contextlib.suppress(TimerClosed):  # then `close` sends the group, and nobody needs the watch
            self._timer.after(delay_ms, callback)

    def _release(self, entry: Entry) -> None:
        with self._changed:  # waits until `_place` has noted the task
            entry.task = None
        self._group.append(entry)
        if len(self._group) == 1:
            self._after(0, self._send)

    def _send(self) -> None:
        with self._sending:
            self._send_group()

    def _send_group(self) -> None:
        group, self._group = self._group, []
        for start in range(0, len(group), _GROUP):
            if self._failure is None:
                self._hand_over(group[start : start + _GROUP])

    def _hand_over(self, entries: Sequence[Entry]) -> None:
        assert self._clock is not None
        sent: list[tuple[Entry, float]] = []
        deliveries: list[Delivery] = []
        early: list[Entry] = []
        for entry in entries:
            wall_ns = self._wall_ns()
            late_ns = self._clock.late_ns(entry.message.due_ms, wall_ns)
            if late_ns < 0:
                early.append(entry)
            else:
                sent.append((entry, late_ns / 1e6))
                deliveries.append(Delivery(entry.message, wall_ns // 1_000_000, late_ns / 1e6))
        if deliveries:
            try:
                self._sink.send(deliveries)
            except OSError as error:
                part = f"the last {len(deliveries)} may be there in part"
                self.fail(DeliveryFailed(f"the destination takes no more: {error.strerror}; {part}"))
                return
            self._note_delivered(sent)
        if early:
            self._place_again(self._clock, early)

    def _note_delivered(self, sent: Sequence[tuple[Entry, float]]) -> None:
        with self._changed:
            for entry, lateness_ms in sent:
                self._register.finish(entry, Outcome.DELIVERED)
                self.summary.lateness_ms.append(lateness_ms)
            self.summary.delivered += len(sent)
            if self._is_over():
                self._changed.notify_all()

    def _place_again(self, clock: DueClock, released: Collection[Entry] = ()) -> None:
        with self._changed:
            clock.read_again()
            again = set(released)
            self._place(
                clock, [entry for entry in self._register.waiting() if entry in again or self._take_back(entry)]
            )

    def _watch(self) -> None:
        assert self._clock is not None
        if self._clock.was_stepped():
            self._place_again(self._clock)
        self._after(_WATCH_MS, self._watch)

    def _close_sink(self) -> None:
        try:
            self._sink.close()
        except OSError as error:
            raise DeliveryFailed(f"the destination failed at the end: {error.strerror}") from error
