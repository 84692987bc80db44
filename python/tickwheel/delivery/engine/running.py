"""An open store, and the engine that delivers its messages until `close`. Nothing is due before `start`.

The engine is native. Here its answers become futures, its events log records, and its counts a `Summary`.
"""

import secrets
import threading
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from tickwheel._native import MOST_PAUSED_KEYS, DeliveryEngine, Receipt, Records, rate_per_s
from tickwheel.delivery.base.errors import DeliveryFailed, WrongUsage
from tickwheel.delivery.base.threads import start
from tickwheel.delivery.model.entries import Answer, Letter, Pause, SetDestination
from tickwheel.delivery.model.operations import reply
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.model.summary import PERCENTILES, Summary
from tickwheel.delivery.observe.log import log_events, log_text, logger
from tickwheel.delivery.outbox.reader import OutboxReader
from tickwheel.delivery.outbox.source import SourceOpener
from tickwheel.delivery.sight import Destinations, InDoubt, Replication, StoreStatus, StoreView
from tickwheel.delivery.sight.destinations import SHOWN, destinations_of
from tickwheel.delivery.sinks import CoroutineFunction, Destination, Opener, SinkSettings

_SAY_AFTER_S = 2


class Running:
    """Opens store and destination. `put_letters` is called in a thread of its own. `waiting` is called with a text if
    another process has the store, or if the destination takes more than 2 s to open, and `standing_by` if one owns the
    store that this one is replicated to (D21); by default they are one. While another process has the store, `check` is
    called again and again; an exception of `check` ends the wait. `loop` runs a coroutine function; `None`: a thread of
    its own does. Errors: `WrongUsage`, `DeliveryFailed`.
    """

    def __init__(
        self,
        path: Path,
        opener: Opener,
        settings: Settings,
        put_letters: Callable[[Sequence[Letter]], None],
        waiting: Callable[[str], object] | None = None,
        *,
        standing_by: Callable[[str], object] | None = None,
        check: Callable[[], object] | None = None,
        loop: AbstractEventLoop | None = None,
        outboxes: Sequence[SourceOpener] = (),
    ) -> None:
        opener = opener.on(loop) if isinstance(opener, CoroutineFunction) else opener
        run = secrets.token_hex(8)
        say = waiting or log_text
        slow = threading.Timer(_SAY_AFTER_S, say, ["waiting for the destination to open"])
        slow.daemon = True

        def open_sink(store_id: str) -> object:
            assert not isinstance(opener, Destination)
            if slow.ident is None:  # it is the first one
                with suppress(RuntimeError):  # there is no thread to be had
                    slow.start()
            return opener(SinkSettings(store_id, settings.sink_timeout_s, run))

        self._is_global = settings.order == "global"
        self.rate_per_s = rate_per_s(settings.rate) if settings.rate else 0
        """How many messages the rate allows; 0: there is none."""
        self._failure: BaseException | None = None
        self.store = path
        try:
            self.engine = DeliveryEngine(
                path,
                settings,
                opener if isinstance(opener, Destination) else open_sink,
                put_letters=put_letters,
                put_events=log_events,
                waiting=say,
                standing_by=standing_by or say,
                check=check,
            )
            """The native engine, for its own questions and for a recording of its timer."""
        finally:
            slow.cancel()
        self.view = StoreView(path, figures=self.destination_figures, tenants=self.engine.tenant_figures)
        """Looks at the store."""
        self.opened_ms = time.time_ns() // 1_000_000
        """When the counts began."""
        self.recurring = 0
        """How many messages recurred at the beginning of `close`."""
        try:
            if settings.destinations:
                self._set(settings.destinations)
            self.outboxes = [OutboxReader(open_source(), self.submit) for open_source in outboxes]
            """The threads that read outboxes, from `start` to `close`."""
        except BaseException:
            self.engine.close(0)
            raise

    def _set(self, destinations: Sequence[SetDestination]) -> None:
        """Set them, and warn of those that can't be reached."""
        for receipt in self.engine.submit(destinations, format="item"):
            if Answer.REFUSED in receipt.answers():
                raise WrongUsage(f"--destinations: {reply('set_destination', Answer.REFUSED).sentence}")
        for each in destinations:
            if why := self.engine.why_refused(msgspec.json.decode(each.settings)["url"]):
                logger.warning("the destination %s is set, and each send to it is refused: %s", each.name, why)

    def start(self) -> None:
        """Start delivery: from now on messages are due by the wall clock. Errors: `DeliveryFailed`."""
        self.engine.start()
        try:
            for outbox in self.outboxes:
                start(outbox)
        except DeliveryFailed:
            self.close(0)
            raise

    def start_replay(self, speed: float, from_ms: int, head_start_ms: float = 0) -> None:
        """Start a replay of recorded times, `speed` times faster: `from_ms` is in `head_start_ms`."""
        self.engine.start_replay(speed, from_ms, head_start_ms)

    def submit(self, given: object, **options: Any) -> "Future[list[Any]]":
        """Submit, and do not wait for the disk: the future gets for each item its answer, or the `BadRecord` that it
        is, in order, once all are on disk. Blocks while much is queued. Errors: `BadRecord`, `WrongUsage`,
        `DeliveryFailed`; `RuntimeError` after `close`.
        """
        future = _future()
        self.engine.queue(given, partial(_give, future), **options)
        return future

    def try_submit(
        self, given: object, told: Callable[[Receipt | BaseException], object], **options: Any
    ) -> Records | None:
        """As `submit`, but does not wait: while much is queued, it submits nothing, and returns what it has read, to be
        given again. `told` is called in the engine's thread for answers.
        """
        return self.engine.queue(given, told, waits=False, **options)

    @property
    def summary(self) -> Summary:
        """The counts as they stand; lateness only once it is closed."""
        late_ms = zip(PERCENTILES, self.engine.percentiles(), strict=True)
        lateness_ms = {name: None if value is None else round(value, 3) for name, value in late_ms}
        return Summary(**self.engine.counts(), lateness_ms=lateness_ms)

    def with_figures(self, in_doubt: InDoubt) -> InDoubt:
        """With the figures that only the engine has."""
        measures = self.engine.measures()
        taken, places = measures.spare_places
        return structs.replace(in_doubt, keys=measures.keys_in_doubt, spare_places=places, spare_places_taken=taken)

    def status(self) -> StoreStatus:
        """The store in figures, with those that only the engine has. Errors: `WrongUsage`, `StoreFailed`."""
        found = self.view.status()
        replication = Replication.of(self.engine.replication())
        return structs.replace(found, in_doubt=self.with_figures(found.in_doubt), replication=replication)

    def destination_figures(self, names: Sequence[str] | None = None, limit: int = SHOWN) -> Destinations:
        """The destinations with these names, as far as there are any. Without names: `limit` of them, those that are
        down, then those whose messages are overdue for longest, then the others by name. It takes some
        milliseconds, and ten with 10,000 destinations that have messages. Errors: `StoreFailed`.
        """
        return destinations_of(self.engine.destination_figures(names, limit))

    def why_not_paused(self, asked: Pause) -> tuple[str, str]:
        """Why a key or a tenant could not be paused, and the allowed alternative."""
        if asked.tenant is not None:
            return reply("set_tenant", Answer.REFUSED).sentence, "order per key; or pause all"
        if self._is_global:
            return "with one order of all messages no key can be paused: what is due later would overtake", (
                "order per key; or pause all"
            )
        return f"{MOST_PAUSED_KEYS:,} keys are paused", "at most so many: resume one first"

    def fail(self, error: BaseException) -> None:
        """Send nothing more; `check`, `wait` and `close` raise the error. The first one counts."""
        self._failure = self._failure or error
        self.engine.fail(error)

    def check(self) -> None:
        """Raises what ended the run, if anything did."""
        if self._failure is not None:
            raise self._failure
        self.engine.check()

    def wait(self, timeout_s: float) -> bool:
        """Whether nothing waits any more, within that time. Raises what ended the run."""
        if self._failure is not None:
            raise self._failure
        return self.engine.wait_until_empty(timeout_s)

    def close(self, timeout_s: float | None = None) -> None:
        """Send the messages due by now, commit, and stop. A second call does nothing.

        `timeout_s` limits the wait for a sink that hangs. Messages in such a sink then count as not delivered, and are
        sent again next time. If a signal interrupts the call, call it again, perhaps with less time. Errors:
        `DeliveryFailed` with the first failure.
        """
        self.view = StoreView(self.store)
        OutboxReader.stop_all(self.outboxes)
        with suppress(DeliveryFailed):  # it is closed already
            self.recurring = dict(self.engine.measures().states)["recurring"]
        try:
            self.engine.close(timeout_s)
        except DeliveryFailed:
            if self._failure is not None:
                raise self._failure from None
            raise


def _future() -> "Future[list[Any]]":
    future: Future[list[Any]] = Future()
    future.set_running_or_notify_cancel()  # cancelling the future would not take the messages back
    return future


def _give(future: "Future[list[Any]]", told: Receipt | BaseException) -> None:
    if isinstance(told, BaseException):
        future.set_exception(told)
    else:
        future.set_result(told.answers())
