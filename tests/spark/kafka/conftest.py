"""A broker for the session."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..cluster import Cluster
from .broker import Broker
from .jars import jars_of

_numbers = itertools.count()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("kafka"), jars_of("broker"))
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Cluster]:
    """Starts processes and ends them; it has no master."""
    made = Cluster(tmp_path, workers=0)
    yield made
    made.stop()


@pytest.fixture
def topic() -> str:
    """A new name."""
    return f"topic{next(_numbers)}"
