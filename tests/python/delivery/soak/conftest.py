"""Sizes of the soak tests: short by default, long with TICKWHEEL_SOAK=1 (`make soak`)."""

import os
import random
from collections.abc import Callable

import pytest

IS_SOAK = os.environ.get("TICKWHEEL_SOAK") == "1"


@pytest.fixture
def size() -> Callable[[int, int], int]:
    """The first number, or the second in `make soak`."""
    return lambda short, long: long if IS_SOAK else short


@pytest.fixture
def seed() -> int:
    """The seed, printed when a test fails; TICKWHEEL_SEED sets it."""
    chosen = int(os.environ.get("TICKWHEEL_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"TICKWHEEL_SEED={chosen}")
    return chosen
