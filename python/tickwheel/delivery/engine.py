"""The parts of delivery put together around one store and one destination, with their threads.

    store <-> writer <-> dispatcher <-> timer
                             |
                          senders -> sink

Making one opens store and sink and finds out what an earlier run, that crashed, has sent. `run` starts the threads,
`start` lets things be due, `close` ends it all in the right order.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from tickwheel import Timer, TimerClosed
from tickwheel.delivery.clock import DueClock
from tickwheel.delivery.dispatcher import Dispatcher
from tickwheel.delivery.errors import DeliveryFailed, StoreFailed, WrongUsage
from tickwheel.delivery.loader import Loader
from tickwheel.delivery.retry import Retry
from tickwheel.delivery.sender import Senders
from tickwheel.delivery.sinks import SinkOpener, SinkSettings
from tickwheel.delivery.store import Done, Outcome, Store, inputs, ledger, meta
from tickwheel.delivery.store.housekeeping import Housekeeping
from tickwheel.delivery.store.letters import Letter
from tickwheel.delivery.summary import Summary
from tickwheel.delivery.window import Bounds, Window
from tickwheel.delivery.writer import Writer

_WATCH_MS: Final = 1000
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Settings:
    """How to deliver; the options of `tickwheel deliver` with the same names. Errors: `WrongUsage`."""

    order: Literal["key", "global"] = "key"
    horizon_s: float = 10.0
    sink_timeout_s: float = 30.0
    keep_ids_days: float = 7.0
    retry: Retry = field(default_factory=Retry)
    bounds: Bounds = field(default_factory=Bounds)

    def __post_init__(self) -> None:
        if self.order not in ("key", "global"):
            raise WrongUsage(f"order is {self.order!r}: it may be 'key' or 'global'")
        for name, value, least, most in (
            ("horizon", self.horizon_s, 0.1, 3600),
            ("max-attempts", self.retry.max_attempts, 1, 1_000_000),
            ("sink-timeout", self.sink_timeout_s, 0.001, 86_400),
            ("keep-ids", self.keep_ids_days, 0, 36_500),
        ):
            if not least <= value <= most:
                raise WrongUsage(f"{name} is {value:g}: it may be {least:g} to {most:,}")


class Engine:
    """Uses `timer` alone, and closes it. `fail` may be called by any of its threads; `wait` raises what it got."""

    def __init__(
        self,
        path: Path,
        opener: SinkOpener,
        timer: Timer,
        settings: Settings,
        *,
        put_letters: Callable[[Sequence[Letter]], None],
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._timer = timer
        self._failure: BaseException | None = None
        self._is_closed = False
        self._threads: list[threading.Thread] = []
        self.store = Store(path)
        try:
            self.inputs = inputs.every(self.store.db)
            self._ledger_start = ledger.last(self.store.db)
            self.dispatcher = Dispatcher(
                timer,
                Window(settings.bounds, is_global=settings.order == "global"),
                settings.retry,
                report=lambda done, dead: self.writer.report(done, dead),
                wake=lambda: self.writer.wake(),
                wall_ns=wall_ns,
            )
            self._loader = Loader(self.store, self.dispatcher, settings.horizon_s * 1000)
            self.writer = Writer(
                self.store,
                self.dispatcher,
                self._loader,
                Housekeeping(self.store, round(settings.keep_ids_days * _DAY_MS)),
                sync=lambda: self.senders.sync(),
                put_letters=put_letters,
                fail=self.fail,
                load_every_s=settings.horizon_s / 4,
                wall_ns=wall_ns,
            )
            self.senders = Senders(
                self.dispatcher,
                timer,
                opener,
                SinkSettings(self.store.store_id, settings.sink_timeout_s),
                gate=self.writer.gate,
                note_position=self.writer.note_position,
                fail=self.fail,
            )
        except BaseException:
            self.store.close()
            raise
        try:
            self.summary.resumed = self.store.waiting
            self._recover(wall_ns() // 1_000_000)
        except BaseException:
            self.senders.first.close()
            self.store.close()
            raise

    @property
    def summary(self) -> Summary:
        """The counts as they stand."""
        return self.writer.summary

    def start(self, clock: DueClock) -> None:
        """From now on things are due, by this clock."""
        self.dispatcher.start(clock)
        self._loader.start(clock)
        self.writer.wake()
        self._after(_WATCH_MS, self._watch)

    def run(self) -> None:
        """Start the threads."""
        self.senders.start()
        thread = threading.Thread(target=self.writer.run, name="writer-deliver", daemon=True)
        self._threads.append(thread)
        thread.start()

    def fail(self, error: BaseException) -> None:
        """Send nothing more; `wait` raises `error`. The first call counts."""
        self._failure = self._failure or error
        self.dispatcher.halt()
        self.writer.fail(error)

    def check(self) -> None:
        """Raises what `fail` was given."""
        if self._failure is not None:
            raise self._failure

    def wait(self, timeout_s: float) -> bool:
        """Whether nothing waits any more, within that time. Raises what `fail` was given."""
        done = self.writer.wait_until_empty(timeout_s)
        self.check()
        return done

    def close(self, timeout_s: float | None = None) -> None:
        """Send what is due by now, commit, and stop.

        `timeout_s` bounds the wait for a sink that hangs; what is in its hands then counts as not delivered, and is
        sent again next time. Errors: `DeliveryFailed`, the first one there was.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._timer.shutdown(None if timeout_s is None else timeout_s * 1000)
        all_ended = self.senders.stop(timeout_s)
        self.writer.stop()
        for thread in self._threads:
            thread.join()
        if not self._threads:
            self.writer.finish()
        try:
            if not isinstance(self._failure, StoreFailed):
                self._note_the_end(is_clean=all_ended and self._failure is None)
        finally:
            self.store.close()
            try:
                self.senders.close()
            except DeliveryFailed as error:
                self._failure = self._failure or error
        self.check()

    def _recover(self, now_ms: int) -> None:
        """Find out what an earlier run, that crashed, has sent (D5)."""
        with self.store.transaction():
            suspects = self.store.suspects()
            position = meta.get(self.store.db, "position")
        found = set(self.senders.first.arrived([row.seq for row in suspects], str(position) if position else None))
        with self.store.transaction():
            self.store.finish(
                [
                    Done(row.seq, row.due_ms, Outcome.DELIVERED, now_ms, redelivered=True)
                    for row in suspects
                    if row.seq in found
                ]
            )
            meta.put(self.store.db, "position", self.senders.first.position())
        self.summary.delivered += len(found)

    def _note_the_end(self, *, is_clean: bool) -> None:
        with self.store.transaction():
            tried = [entry for entry in self.dispatcher.window if entry.attempt]
            self.store.mark_redelivered([entry.position for entry in tried])
            if is_clean:
                self.store.hand(None)
            self.summary.cancels_unknown = self.store.remembered_cancels
            self.summary.lateness_ms = ledger.lateness_ms(self.store.db, self._ledger_start)

    def _watch(self) -> None:
        if self.dispatcher.clock_was_stepped():
            self.writer.wake()
        self._after(_WATCH_MS, self._watch)

    def _after(self, delay_ms: float, callback: Callable[[], object]) -> None:
        with contextlib.suppress(TimerClosed):
            self._timer.after(delay_ms, callback)
