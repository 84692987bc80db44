"""A deliverer on the manual clock, with a wall clock that a test may step and a sink that remembers."""

from collections.abc import Callable, Iterator, Sequence

import msgspec
import pytest

from tickwheel.delivery import Columns, Delivery, Message
from tickwheel.delivery.clock import ReplayClock, WallClock
from tickwheel.delivery.deliverer import Deliverer
from tickwheel.testing import ManualTimer

START_MS = 1_700_000_000_000


class RememberingSink:
    def __init__(self) -> None:
        self.groups: list[list[Delivery]] = []
        self.error: OSError | None = None
        self.closed = False

    def send(self, deliveries: Sequence[Delivery]) -> None:
        if self.error is not None:
            raise self.error
        self.groups.append(list(deliveries))

    def close(self) -> None:
        self.closed = True

    @property
    def sent(self) -> list[Delivery]:
        return [delivery for group in self.groups for delivery in group]

    @property
    def ids(self) -> list[str]:
        return [delivery.message.id for delivery in self.sent]


class Desk:
    """Wall and timer stand at `START_MS` and 5,000 ms; `step_ms` is how far the wall clock was stepped since."""

    def __init__(self) -> None:
        self.timer = ManualTimer(start_ms=5_000)
        self.step_ms = 0
        self.sink = RememberingSink()
        self.deliverer = Deliverer(self.timer, self.sink, self.wall_ns)

    def wall_ns(self) -> int:
        return (START_MS + self.timer.now_ms() - 5_000 + self.step_ms) * 1_000_000

    def start(self) -> "Desk":
        self.deliverer.start(WallClock(self.timer, self.wall_ns))
        return self

    def start_replay(self, speed: float, from_ms: int) -> None:
        self.deliverer.start(ReplayClock(self.timer, speed, from_ms))

    def accept(self, id_: str, after_ms: int = 0, *, key: str | None = None, payload: bytes = b"1") -> None:
        self.deliverer.accept(Message(id_, key, START_MS + after_ms, msgspec.Raw(payload)))


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture(scope="session")
def new_desk() -> Callable[[], Desk]:
    """For a property, which needs a fresh one for each example."""
    return Desk


@pytest.fixture
def start_ms() -> int:
    return START_MS


@pytest.fixture
def columns() -> Columns:
    return Columns()


@pytest.fixture
def switch_interval() -> Iterator[None]:
    """The command sets it for its process, which here is the test's."""
    import sys

    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)
