"""Fixtures of the tests of delivery."""

from collections.abc import Iterator

import pytest

from delivery.postgres_server import postgres_server, postgres_url  # noqa: F401, fixtures
from delivery.webhook_receiver import receiver  # noqa: F401, a fixture
from tickwheel.delivery.model.message import Columns


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
