"""Desks with the test's own store, sink or settings, and a hook inside a commit."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tickwheel.delivery.settings import Settings

Desk = Any  # of ../conftest.py


@pytest.fixture
def make_desk(tmp_path: Path, desk: Desk) -> Iterator[Callable[..., Desk]]:
    """A desk with these settings, in a folder of its own."""
    made: list[Desk] = []

    def make(settings: Settings = Settings()) -> Desk:  # noqa: B008
        folder = tmp_path / f"desk {len(made)}"
        folder.mkdir()
        made.append(type(desk)(folder, settings))
        return made[-1]

    yield make
    for each in made:
        each.crash()


@pytest.fixture
def during_commit() -> Callable[[Desk, Callable[[], object]], None]:
    """Call a function once, inside the writer's next transaction, right before its commit."""

    def arrange(desk: Desk, act: Callable[[], object]) -> None:
        store = desk.engine.store
        plain = store.transaction

        @contextlib.contextmanager
        def transaction() -> Iterator[None]:
            store.transaction = plain
            with plain():
                yield
                act()

        store.transaction = transaction

    return arrange
