"""An engine on the manual clock, with a wall clock that a test can step and a sink that records; no threads."""

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from delivery.postgres_server import postgres_url  # noqa: F401, a fixture
from tickwheel.delivery import Answer, Cancel, Delivery, DeliveryFailed, Letter, Message
from tickwheel.delivery.clock import ReplayClock, WallClock
from tickwheel.delivery.engine import Engine, Settings
from tickwheel.delivery.items import Item, Look, Put
from tickwheel.delivery.message import Columns
from tickwheel.delivery.sender import Sender
from tickwheel.delivery.sinks import Refusals, Sink, SinkSettings
from tickwheel.testing import ManualTimer

START_MS = 1_700_000_000_000


class RememberingSink(Sink):
    """Accepts everything unless a test sets `error`, which is raised, or `refuses`, which decides each delivery."""

    max_batch = 64

    def __init__(self, has_already: Collection[int] = ()) -> None:
        self.groups: list[list[Delivery]] = []
        self.attempts: list[Delivery] = []
        self.error: Exception | None = None
        self.refuses: Callable[[Delivery], str | None] = lambda delivery: None
        self.has_already = set(has_already)
        self.asked: list[int] | None = None
        self.closed = False

    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        self.attempts += deliveries
        if self.error is not None:
            raise self.error
        refusals = {place: why for place, it in enumerate(deliveries) if (why := self.refuses(it)) is not None}
        self.groups.append([it for place, it in enumerate(deliveries) if place not in refusals])
        return refusals

    def arrived(self, suspects: Any, position: str | None) -> set[int]:
        self.asked = sorted(suspects)
        return self.has_already & set(suspects)

    def close(self) -> None:
        self.closed = True

    @property
    def sent(self) -> list[Delivery]:
        return [delivery for group in self.groups for delivery in group]

    @property
    def ids(self) -> list[str]:
        return [delivery.message.id for delivery in self.sent]


class Desk:
    """Wall clock and timer start at `START_MS` and 5,000 ms; `step_ms` is the step of the wall clock since then.

    The work of the engine's threads runs here in turn, after each move of the clock and each submit.
    """

    def __init__(
        self,
        folder: Path,
        settings: Settings = Settings(),  # noqa: B008
        *,
        boot_ms: int = 0,
        sink: RememberingSink | None = None,
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.timer = ManualTimer(start_ms=5_000)
        self.boot_ms = boot_ms
        self.step_ms = 0
        self.sink = sink or RememberingSink()
        self.letters: list[Letter] = []
        self.letters_fail = False
        self.opened: list[SinkSettings] = []
        self.engine = Engine(
            folder / "store.db",
            self._open,
            self.timer,
            settings,
            put_letters=self._put_letters,
            wall_ns=self.wall_ns,
        )
        writer = self.engine.writer
        self.sender = Sender(self.engine.dispatcher, self.sink, gate=lambda: True, note_position=writer.note_position)

    def _open(self, settings: SinkSettings) -> Sink:
        self.opened.append(settings)
        return self.sink

    def _put_letters(self, letters: Sequence[Letter]) -> None:
        if self.letters_fail:
            raise DeliveryFailed("no room for dead letters")
        self.letters += letters

    def wall_ns(self) -> int:
        return (START_MS + self.boot_ms + self.timer.now_ms() - 5_000 + self.step_ms) * 1_000_000

    def start(self) -> "Desk":
        self.engine.start(WallClock(self.timer, self.wall_ns))
        self.pump()
        return self

    def start_replay(self, speed: float, from_ms: int) -> None:
        self.engine.start(ReplayClock(self.timer, speed, from_ms))
        self.pump()

    def hand_in(self, *items: Item) -> list[Answer]:
        ticket = self.engine.writer.submit(items)
        self.pump()
        return ticket.result(0)

    def accept(
        self, id_: str, after_ms: int = 0, *, key: str | None = None, payload: bytes = b"1", delay_ms: int | None = None
    ) -> Answer:
        message = Message(id_, key, START_MS + after_ms, msgspec.Raw(payload), delay_ms)
        return self.hand_in(Put.of(message))[0]

    def cancel(self, id_: str, key: str | None = None) -> Answer:
        return self.hand_in(Cancel(id_, key))[0]

    def state(self, id_: str, key: str | None = None) -> Answer:
        return self.hand_in(Look(id_, key))[0]

    def pump(self) -> None:
        """Run until nothing is left to do at this moment."""
        self.timer.advance(0)
        while self.engine.writer.step() | self.sender.step(lambda sender: None, wait=False):
            self.timer.advance(0)
        self.engine.writer.step()

    def advance(self, ms: int) -> None:
        """Move the clock from one due instant to the next, in steps of at most half a second."""
        end_ms = self.timer.now_ms() + ms
        self.pump()
        while self.timer.now_ms() < end_ms:
            nearest = self.timer.pending(limit=1)
            next_ms = min([end_ms, self.timer.now_ms() + 500, *(due for due, _ in nearest)])
            self.timer.advance_to(max(next_ms, self.timer.now_ms() + 1))
            self.pump()

    def close(self) -> None:
        self.engine.close(0)

    def crash(self) -> None:
        """Like `kill -9`: uncommitted data is lost."""
        self.engine.store.close()

    def again(self, *, after_ms: int = 0, settings: Settings | None = None) -> "Desk":
        """A new process on the same store with the same destination, `after_ms` later."""
        boot_ms = self.wall_ns() // 1_000_000 - START_MS + after_ms
        sink = RememberingSink(self.sink.has_already)
        return Desk(self.folder, settings or self.settings, boot_ms=boot_ms, sink=sink)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with_desk = Desk(tmp_path)
    yield with_desk
    with_desk.crash()


@pytest.fixture(scope="session")
def new_desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Desk]]:
    """For tests that need a new desk, several, or one with other settings."""
    made: list[Desk] = []

    def make(settings: Settings = Settings()) -> Desk:  # noqa: B008
        made.append(Desk(tmp_path_factory.mktemp("desk"), settings))
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
