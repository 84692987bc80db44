"""Signals that stop a run: `tickwheel._stopping` (rule D13)."""

import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable

import pytest

from tickwheel._stopping import Stopped, stopped_by_signals

pytestmark = pytest.mark.timeout(60)


class Raises:
    """A signal comes while the destructor runs. Python drops what its handler raises."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        signal.raise_signal(self.number)


class Waits:
    """The destructor runs until a signal comes."""

    def __del__(self) -> None:
        threading.Event().wait(30)


def in_a_destructor(number: int) -> None:
    Raises(number)


def in_two_destructors(number: int) -> None:
    Raises(number)
    Waits()


def in_a_callback(number: int) -> None:
    dies = threading.Event()
    weak = weakref.ref(dies, lambda _: signal.raise_signal(number))
    del dies
    assert weak() is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("drop", [in_a_destructor, in_two_destructors, in_a_callback])
def test_a_signal_that_python_drops_comes_again__D13(drop: Callable[[int], None], number: int) -> None:
    def run() -> None:
        with stopped_by_signals():
            drop(number)
            threading.Event().wait(30)

    before = signal.signal(number, signal.SIG_DFL)  # a process under nohup ignores SIGHUP
    try:
        with pytest.raises(Stopped) as stop:
            run()
    finally:
        signal.signal(number, before)
    assert stop.value.number == number


def test_what_else_is_dropped_is_told_as_ever__D13(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails:
        def __del__(self) -> None:
            raise ValueError

    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: told.append(dropped.exc_type))
    before = sys.unraisablehook
    with stopped_by_signals():
        Fails()
    assert told == [ValueError]
    assert sys.unraisablehook is before


IMPORTED = """if True:
    import importlib.abc, signal, sys
    from tickwheel import cli

    class Dies:
        def __del__(self):
            signal.raise_signal(signal.SIGTERM)

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, name, *_):
            if name == "tickwheel.commands":
                Dies()

    sys.meta_path.insert(0, Finder())
    sys.argv[1:] = ["deliver", "-"]
    cli.main()
"""


def test_a_signal_that_is_dropped_while_a_command_is_imported_ends_it__D13() -> None:
    command = [sys.executable, "-c", IMPORTED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:  # no end of the input: without the signal it waits for ever
            assert process.wait(30) == 130
        finally:
            process.kill()
