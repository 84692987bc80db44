"""A broker for the session."""

import itertools
from collections.abc import Iterator

import pytest

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
def topic() -> str:
    """A new name."""
    return f"topic{next(_numbers)}"
