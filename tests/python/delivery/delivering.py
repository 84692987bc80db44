"""A running engine with a destination of the test, on the real clocks. Tests wait for events, and assert no times."""

import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from tickwheel.delivery import Answer, Delivery, Letter, Message
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.retry import Retry
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.sinks import Opener, Refusals, Sink, sink_of_function

LONG_S = 20
"""Longer than any wait of a test takes."""


class Run:
    """The engine of a store in this folder, and its dead letters. If `starts` is false, nothing is due yet."""

    def __init__(
        self,
        folder: Path,
        to: Opener,
        settings: Settings = Settings(),  # noqa: B008
        *,
        starts: bool = True,
    ) -> None:
        self.letters: list[Letter] = []
        self.running = Running(folder / "store.db", to, settings, self.letters.extend)
        if starts:
            self.running.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.running.close(LONG_S)

    def give(self, *items: Any) -> list[Answer]:
        return self.running.submit(items).result(LONG_S)

    def deliver(self, *items: Any) -> None:
        """Waits until each of these is delivered or given up."""
        self.give(*items)
        assert self.running.wait(LONG_S)

    @property
    def reasons(self) -> dict[str, str]:
        """The reasons of the dead letters, by id."""
        return {msgspec.json.decode(it.record)["id"]: it.reason.partition(": ")[2] for it in self.letters}


def to_function(function: Callable[[Delivery], object]) -> Opener:
    found: Opener = sink_of_function(function)
    return found


def opener_of(sink: Sink) -> Opener:
    return lambda settings: sink


def given_up(folder: Path, to: Opener, *messages: Message) -> dict[str, str]:
    """Delivers these with one attempt each. Returns the reasons of the dead letters, by id."""
    with Run(folder, to, Settings(retry=Retry(1)), starts=False) as run:
        run.give(*messages)
        run.running.start()
        assert run.running.wait(LONG_S)
    assert all(it.reason.startswith("gave up after 1 attempt: ") for it in run.letters)
    return run.reasons


class _Hangs(Sink):
    def __init__(self) -> None:
        self.is_sending, self.may_go = threading.Event(), threading.Event()

    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        self.is_sending.set()
        self.may_go.wait(LONG_S)
        return {}


def crashed(folder: Path, *messages: Message) -> Path:
    """Returns a folder with the store of a process that was killed while it sent the first of these."""
    (left := folder / "crashed").mkdir()
    (running := folder / "running").mkdir()
    sink: Any = _Hangs()
    with Run(running, opener_of(sink), starts=False) as run:
        run.give(*messages)
        run.running.start()
        assert sink.is_sending.wait(LONG_S)
        for name in ("store.db", "store.db-wal"):
            shutil.copyfile(running / name, left / name)
        sink.may_go.set()
    return left
