"""A store in a folder of the test's own, and messages to put into it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tickwheel.delivery.message import Message
from tickwheel.delivery.store import Incoming, Store

JSON = msgspec.Raw(b"1")


class Shelf:
    """Opens the store in one folder any number of times, and closes it at the end."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store.db"
        self.opened: list[Store] = []

    def open(self) -> Store:
        self.opened.append(Store(self.path))
        return self.opened[-1]

    def crash(self) -> Store:
        """Like `kill -9` and a new start: uncommitted data is lost."""
        self.opened[-1].close()
        return self.open()

    def close(self) -> None:
        for store in self.opened:
            store.close()


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    made = Shelf(tmp_path)
    yield made
    made.close()


@pytest.fixture
def store(shelf: Shelf) -> Store:
    return shelf.open()


@pytest.fixture
def incoming() -> Callable[..., Incoming]:
    def make(
        id_: str = "a", due_ms: int = 5, *, key: str | None = None, payload: msgspec.Raw | bytes = JSON
    ) -> Incoming:
        return Incoming.of(Message(id_, key, due_ms, payload))

    return make
