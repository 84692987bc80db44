"""What the tests of the timer share: waiting for an event, and finding a task in a snapshot."""

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tickwheel import Timer
from tickwheel.testing import ManualTimer

LONG_S = 20.0
"""Longer than anything here takes; only a broken timer needs it."""


def wait(event: threading.Event) -> None:
    assert event.wait(LONG_S), "what was waited for never happened"


def until(condition: Callable[[], bool]) -> None:
    """Looks again and again until the condition holds; fails when it never does."""
    end = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < end, "what was waited for never became true"
        time.sleep(0.0005)


def places(timer: Timer) -> dict[str, tuple[int, int]]:
    """Where each task of the wheel stands, by name, as (level, bucket)."""
    return {
        name: (level["level"], bucket)
        for level in timer.snapshot()["levels"]
        for bucket, content in enumerate(level["buckets"])
        for name in content["tasks"]
    }


def armed(timer: Timer) -> list[tuple[int, int, int]]:
    """The bucket queue, as (expiration in ms, level, bucket)."""
    return [(item["expiration_ms"], item["level"], item["bucket"]) for item in timer.snapshot()["queue"]]


def stops(timer: ManualTimer) -> list[int]:
    """Runs the timer dry, one `run_next` after the other; at what times each stopped."""
    times = []
    while timer.run_next():
        times.append(timer.now_ms())
    return times


def executor_thread(name: str) -> threading.Thread | None:
    found = [thread for thread in threading.enumerate() if thread.name == f"executor-{name}"]
    return found[0] if found else None


def native_threads() -> list[str]:
    """The names of this process's threads as the system knows them, cut to 15 characters."""
    return [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]


class Hold:
    """A callback that occupies the thread it runs on until it is let go."""

    def __init__(self) -> None:
        self.running = threading.Event()
        self.let_go = threading.Event()

    def __call__(self) -> None:
        self.running.set()
        wait(self.let_go)


def refused(error: type[Exception], message: str, call: Callable[[], object]) -> None:
    """Checks the very exception and the whole message."""
    with pytest.raises(error, match=f"^{re.escape(message)}$") as caught:
        call()
    assert type(caught.value) is error
