"""The threads that hand messages to the sink, each with a sink of its own (rules D5, D6, D10).

- A send that takes longer than the time-out is cut off: its messages count as failed, and a fresh thread with a fresh
  sink takes the place of the one that hangs, which ends when its sink returns, and whose answer nobody hears.
- Nothing is sent while too much is uncommitted: `gate` waits.
- A sink that raises `DeliveryFailed` ends the run by `fail`; what it was given has no outcome then.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count

from tickwheel import Timer, TimerClosed, TimerTask
from tickwheel.delivery.dispatcher import Dispatcher
from tickwheel.delivery.errors import DeliveryFailed
from tickwheel.delivery.retry import Retry
from tickwheel.delivery.sinks.sink import Delivery, Refusals, Sink, SinkOpener, SinkSettings

_REASON_CHARS = 500
_REOPEN = Retry(longest_ms=10_000)


class Sender:
    """One sink and what is in its hands. `step` sends once; `Senders` has threads that call it."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        sink: Sink,
        *,
        gate: Callable[[], bool],
        note_position: Callable[[str | None], None],
    ) -> None:
        self.sink = sink
        self._dispatcher = dispatcher
        self._gate = gate
        self._note_position = note_position
        self._flight = threading.Lock()  # guards the two below: who settles, the sender or the time-out
        self._deliveries: Sequence[Delivery] = ()
        self.is_cut_off = False

    def step(self, watch: Callable[["Sender"], TimerTask | None], *, wait: bool = True) -> bool:
        """Send what is ready; `False` if there is nothing. `watch` gives the time-out."""
        entries = self._dispatcher.take(self.sink.max_batch, wait=wait)
        if entries is None:
            return False
        if not self._gate():
            return False
        deliveries = self._dispatcher.stamp(entries)
        if not deliveries:
            return True
        with self._flight:
            self._deliveries = deliveries
        guard = watch(self)
        try:
            refusals = self._send(deliveries)
        except DeliveryFailed:
            if self.is_cut_off:  # nobody hears it any more
                return False
            raise
        if guard is not None:
            guard.cancel()
        with self._flight:
            if self.is_cut_off:
                return False
            self._deliveries = ()
        position = self.sink.position()
        self._dispatcher.settle(deliveries, refusals)
        self._note_position(position)
        return True

    def cut_off(self, reason: str) -> bool:
        """Count what is in its hands as failed, unless its sink has just returned."""
        with self._flight:
            if not self._deliveries:
                return False
            self.is_cut_off = True
            deliveries, self._deliveries = self._deliveries, ()
        self._dispatcher.settle(deliveries, dict.fromkeys(range(len(deliveries)), reason))
        return True

    def _send(self, deliveries: Sequence[Delivery]) -> Refusals:
        try:
            return self.sink.send(deliveries)
        except DeliveryFailed:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[:_REASON_CHARS]
            return dict.fromkeys(range(len(deliveries)), reason)


class Senders:
    """All of them. `gate` is called before each send; `note_position` gets how far the destination is."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        timer: Timer,
        opener: SinkOpener,
        settings: SinkSettings,
        *,
        gate: Callable[[], bool],
        note_position: Callable[[str | None], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._timer = timer
        self._opener = opener
        self._settings = settings
        self._gate = gate
        self._note_position = note_position
        self._fail = fail
        self._lock = threading.Lock()
        self._threads: dict[Sender, threading.Thread] = {}
        self._is_stopping = threading.Event()
        self.first = opener(settings)

    def start(self) -> None:
        """One thread for the sink that is open, and more where it wants more. Errors: those of opening a sink."""
        sinks = [self.first]
        try:
            while len(sinks) < self.first.threads:
                sinks.append(self._opener(self._settings))
        except BaseException:
            for sink in sinks[1:]:
                sink.close()
            raise
        for sink in sinks:
            self._add(sink)

    def stop(self, timeout_s: float | None) -> bool:
        """Let every sender end what it has in hand; whether all did within that time."""
        self._is_stopping.set()
        with self._lock:
            threads = list(self._threads.values())
        self._dispatcher.stop(len(threads))
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in threads:
            thread.join(None if end_s is None else max(0, end_s - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def close(self) -> None:
        """Close the sinks of all senders that have ended, once what they sent is synced. Errors: `DeliveryFailed`."""
        with self._lock:
            ended = [sender.sink for sender, thread in self._threads.items() if not thread.is_alive()]
        errors = []
        for sink in ended or [self.first]:
            try:
                sink.close()
            except Exception as error:
                errors.append(error)
        if errors:
            raise DeliveryFailed(f"the destination failed at the end: {errors[0]}")

    def sync(self) -> None:
        """Make durable what was sent. Errors: `DeliveryFailed`."""
        with self._lock:
            sinks = [sender.sink for sender in self._threads]
        for sink in sinks:
            sink.sync()

    def _add(self, sink: Sink) -> None:
        sender = Sender(self._dispatcher, sink, gate=self._gate, note_position=self._note_position)
        thread = threading.Thread(target=self._run, args=(sender,), name="sender-deliver", daemon=True)
        with self._lock:
            self._threads[sender] = thread
        thread.start()

    def _run(self, sender: Sender) -> None:
        try:
            while sender.step(self._watch):
                pass
        except BaseException as error:
            self._fail(error)
        if sender.is_cut_off:
            with contextlib.suppress(Exception):
                sender.sink.close()

    def _replace(self) -> None:
        """In a thread, as opening may take its time; what is due waits for it, and is not counted as tried."""
        for attempt in count(1):
            with contextlib.suppress(Exception):
                self._add(self._opener(self._settings))
                return
            if self._is_stopping.wait(_REOPEN.delay_ms(attempt) / 1000):
                return

    def _watch(self, sender: Sender) -> TimerTask | None:
        if not sender.sink.is_cut_off:
            return None
        with contextlib.suppress(TimerClosed):
            return self._timer.after(self._settings.timeout_s * 1000, self._cut_off, sender)
        return None

    def _cut_off(self, sender: Sender) -> None:
        if sender.cut_off(f"no answer within {self._settings.timeout_s:g} s"):
            with self._lock:
                self._threads.pop(sender)
            threading.Thread(target=self._replace, name="opener-deliver", daemon=True).start()
