"""The programs of each kind in turn, and a queue that reads what they write."""

import queue
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from delivery.outbox.programs import KINDS, Program, program
from tickwheel.delivery import Delivery, DeliveryQueue


@pytest.fixture(params=KINDS)
def any_program(request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str) -> Iterator[Program]:
    made = program(request.param, tmp_path, postgres_url)
    made.make_table()
    yield made
    made.close()


@pytest.fixture(params=["sqlite3", "psycopg"])
def each_database(request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str) -> Iterator[Program]:
    made = program(request.param, tmp_path, postgres_url)
    made.make_table()
    yield made
    made.close()


class Reading:
    """A queue that reads an outbox."""

    def __init__(self, store: Path, address: str, **more: Any) -> None:
        self._arrived: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        self.letters: queue.SimpleQueue[Any] = queue.SimpleQueue()
        more = {"on_dead_letter": self.letters.put, **more}
        self.queue = DeliveryQueue(store, to=self._arrived.put, outbox=address, **more)

    def next(self) -> Delivery:
        return self._arrived.get(timeout=20)

    def ids(self, count: int) -> list[str]:
        return [self.next().message.id for _ in range(count)]

    @property
    def has_more(self) -> bool:
        return not self._arrived.empty()


@pytest.fixture
def reading(tmp_path: Path) -> Iterator[Callable[..., Reading]]:
    with ExitStack() as stack:

        def read(address: str, store: str = "store.db", **more: Any) -> Reading:
            made = Reading(tmp_path / store, address, **more)
            stack.enter_context(made.queue)
            return made

        yield read
