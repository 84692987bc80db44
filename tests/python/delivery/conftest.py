"""An engine on the manual clock, with a wall clock that a test can step and a sink that records; no threads."""

import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest

from delivery.postgres_server import postgres_server, postgres_url  # noqa: F401, fixtures
from delivery.webhook_receiver import receiver  # noqa: F401, a fixture
from tickwheel._native import DeliveryDesk
from tickwheel.delivery import Answer, Cancel, Delivery, DeliveryFailed, Letter, Message, Summary
from tickwheel.delivery.model.entries import Item, Look
from tickwheel.delivery.model.message import Columns
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.model.summary import PERCENTILES
from tickwheel.delivery.sinks import Opener, Refusals, Sink, SinkSettings

START_MS = 1_700_000_000_000
MEMORY = Path("/dev/shm")


class RememberingSink(Sink):
    """Accepts everything unless a test sets `error` or `sync_error`, which are raised, or `refuses`, which decides each
    delivery.
    """

    max_batch = 64

    def __init__(self, has_already: Collection[int] = ()) -> None:
        self.groups: list[list[Delivery]] = []
        self.attempts: list[Delivery] = []
        self.error: Exception | None = None
        self.sync_error: Exception | None = None
        self.refuses: Callable[[Delivery], str | None] = lambda delivery: None
        self.has_already = set(has_already)
        self.asked: list[int] = []
        self.closed = False

    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        self.attempts += deliveries
        if self.error is not None:
            raise self.error
        refusals = {place: why for place, it in enumerate(deliveries) if (why := self.refuses(it)) is not None}
        self.groups.append([it for place, it in enumerate(deliveries) if place not in refusals])
        return refusals

    def sync(self) -> None:
        if self.sync_error is not None:
            raise self.sync_error

    def arrived(self, suspects: Any, position: str | None) -> set[int]:
        self.asked = sorted([*self.asked, *(it.seq for it in suspects)])
        return self.has_already & {it.seq for it in suspects}

    def close(self) -> None:
        self.closed = True

    @property
    def sent(self) -> list[Delivery]:
        return [delivery for group in self.groups for delivery in group]

    @property
    def ids(self) -> list[str]:
        return [delivery.message.id for delivery in self.sent]


class Clock:
    """The timer's clock."""

    def __init__(self) -> None:
        self._now_ms = 5_000.0

    def now_ms(self) -> float:
        return self._now_ms

    def set_ms(self, now_ms: float) -> None:
        self._now_ms = now_ms


class Desk:
    """Wall clock and timer start at `START_MS` and 5,000 ms; `step_ms` is the step of the wall clock since then.
    `to`: a destination of the engine's own, instead of the sink that remembers.

    The work of the engine's threads runs here in turn, after each move of the clock and each submit.
    """

    def __init__(
        self,
        folder: Path,
        settings: Settings = Settings(),  # noqa: B008
        *,
        boot_ms: int = 0,
        sink: RememberingSink | None = None,
        to: Opener | None = None,
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.timer = Clock()
        self.boot_ms = boot_ms
        self.step_ms = 0
        self.sink = sink or RememberingSink()
        self.to = to or self.open_sink
        self.letters: list[Letter] = []
        self.letters_fail = False
        self.opened: list[SinkSettings] = []
        self.engine = Engine(self)

    def open_sink(self, store_id: str) -> Sink:
        self.opened.append(SinkSettings(store_id, self.settings.sink_timeout_s))
        return self.sink

    def put_letters(self, letters: Sequence[Letter]) -> None:
        if self.letters_fail:
            raise DeliveryFailed("no room for dead letters")
        self.letters += letters

    def wall_ns(self) -> int:
        return self.wall_us() * 1_000

    def wall_us(self) -> int:
        return round((START_MS + self.boot_ms + self.timer.now_ms() - 5_000 + self.step_ms) * 1_000)

    def start(self) -> "Desk":
        self.engine.native.start()
        self.pump()
        return self

    def start_replay(self, speed: float, from_ms: int) -> None:
        self.engine.native.start_replay(speed, from_ms)
        self.pump()

    def submit(self, *items: Item) -> "Future[list[Answer]]":
        """Runs nothing: the answers come after a `commit`."""
        return self.engine.submit(items)

    def commit(self) -> bool:
        """One group; whether there is more to do at once."""
        self.set_clocks()
        return self.engine.native.write()

    def send(self) -> bool:
        """One call of the sink; whether there was anything to send."""
        self.set_clocks()
        return self.engine.native.send()

    def hand_in(self, *items: Item) -> list[Answer]:
        ticket = self.engine.submit(items)
        self.pump()
        return ticket.result(0)

    def accept(
        self, id_: str, after_ms: int = 0, *, key: str | None = None, payload: bytes = b"1", delay_ms: int | None = None
    ) -> Answer:
        return self.hand_in(Message(id_, key, START_MS + after_ms, msgspec.Raw(payload), delay_ms))[0]

    def cancel(self, id_: str, key: str | None = None) -> Answer:
        return self.hand_in(Cancel(id_, key))[0]

    def state(self, id_: str, key: str | None = None) -> Answer:
        return self.hand_in(Look(id_, key))[0]

    def pump(self) -> None:
        """Run until nothing is left to do at this moment."""
        has_more = True
        while has_more:
            while self.commit() | self.send():
                pass
            self.commit()
            has_more = self.send()  # what waited for its attempt to be on disk

    def set_clocks(self) -> None:
        self.engine.native.set_clocks(round(self.timer.now_ms() * 1_000), self.wall_us())

    def advance(self, ms: int) -> None:
        """Move the clock from one due instant to the next, in steps of at most half a second."""
        end_ms = self.timer.now_ms() + ms
        self.pump()
        looked_ms = self.timer.now_ms()
        while self.timer.now_ms() < end_ms:
            wake_us = self.engine.native.next_wake_us()
            nearest = [] if wake_us is None else [wake_us / 1_000]
            next_ms = min([end_ms, self.timer.now_ms() + 500, *nearest])
            self.timer.set_ms(max(next_ms, self.timer.now_ms() + 0.001))
            if self.timer.now_ms() >= looked_ms + 1_000:
                looked_ms = self.timer.now_ms()
                self.set_clocks()
                self.engine.native.follow_clock()
            self.pump()

    def close(self) -> None:
        self.engine.close()

    def crash(self) -> None:
        """Like `kill -9`: uncommitted data is lost."""
        self.engine.native.crash()

    def again(self, *, after_ms: int = 0, settings: Settings | None = None) -> "Desk":
        """A new process on the same store with the same destination, `after_ms` later."""
        self.crash()
        boot_ms = self.wall_us() // 1_000 - START_MS + after_ms
        sink = RememberingSink(self.sink.has_already)
        return Desk(self.folder, settings or self.settings, boot_ms=boot_ms, sink=sink)


class Engine:
    """What a test asks of the engine."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._failure: Exception | None = None
        self._last = Summary()
        self.native = DeliveryDesk(
            desk.folder / "store.db",
            desk.settings,
            desk.to,
            put_letters=desk.put_letters,
            clock_us=round(desk.timer.now_ms() * 1_000),
            wall_us=desk.wall_us(),
        )

    def submit(self, items: Sequence[Item]) -> "Future[list[Answer]]":
        future: Future[list[Answer]] = Future()
        self.native.submit(items, future)
        return future

    @property
    def summary(self) -> Summary:
        late_ms = dict(zip(PERCENTILES, self.native.percentiles(), strict=True))
        return Summary(*self.native.counts(), late_ms)

    @property
    def first_due_ms(self) -> int | None:
        first_ms: int | None = self.native.first_due_ms
        return first_ms

    def fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self.native.fail(error)

    def wait(self, timeout_s: float) -> bool:
        if self._failure is not None:
            raise self._failure
        is_empty: bool = self.native.is_empty()
        return is_empty

    @property
    def in_memory(self) -> int:
        messages: int = self.native.in_memory()[0]
        return messages

    def close(self) -> None:
        """What is due by now is sent, as the threads do."""
        if self._failure is None:
            self._desk.pump()
        self.native.close(self._failure is None)
        if self._failure is not None:
            raise self._failure


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Path]]:
    """Makes folders, in memory where the system has one: a desk commits at each step, and does not test the disk."""
    if not os.access(MEMORY, os.W_OK):
        yield lambda: tmp_path_factory.mktemp("desk")
        return
    with tempfile.TemporaryDirectory(prefix="tickwheel-", dir=MEMORY) as all_of_them:
        yield lambda: Path(tempfile.mkdtemp(dir=all_of_them))


@pytest.fixture
def desk(folders: Callable[[], Path]) -> Iterator[Desk]:
    with_desk = Desk(folders())
    yield with_desk
    with_desk.crash()


@pytest.fixture(scope="session")
def new_desk(folders: Callable[[], Path]) -> Iterator[Callable[..., Desk]]:
    """For tests that need a new desk, several, or one with other settings."""
    made: list[Desk] = []

    def make(settings: Settings = Settings()) -> Desk:  # noqa: B008
        made.append(Desk(folders(), settings))
        return made[-1]

    yield make
    for each in made:
        each.crash()


@pytest.fixture
def start_ms() -> int:
    return START_MS


@pytest.fixture
def columns() -> Columns:
    return Columns()


@pytest.fixture
def switch_interval() -> Iterator[None]:
    """Restores the interpreter's settings that the command changes for its process, here the test's."""
    import gc
    import sys

    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)
    gc.unfreeze()
