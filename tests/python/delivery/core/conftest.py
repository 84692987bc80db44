"""Desks with the test's own settings."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tickwheel.delivery.model.settings import Settings

Desk = Any  # of ../conftest.py


@pytest.fixture
def make_desk(folders: Callable[[], Path], desk: Desk) -> Iterator[Callable[..., Desk]]:
    """A desk with these settings, in a folder of its own."""
    made: list[Desk] = []

    def make(settings: Settings = Settings()) -> Desk:  # noqa: B008
        made.append(type(desk)(folders(), settings))
        return made[-1]

    yield make
    for each in made:
        each.crash()
