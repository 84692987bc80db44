"""Signals that stop a run: `tickwheel._stopping` (rule D13)."""

import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from tickwheel._stopping import SignalEvent, Stopped, stop_noted, stopped_by_signals

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


@pytest.fixture
def number() -> Iterator[signal.Signals]:
    before = {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGUSR1)}
    yield signal.SIGALRM
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_that_interrupts_its_own_handler_is_noted_once__D9(number: signal.Signals) -> None:
    """`threading.Event.set` waited for itself: two SIGHUPs at once stopped a service for ever."""
    event, depth = SignalEvent(number), 0

    def interrupt(frame: FrameType, what: str, _given: Any) -> Any:
        nonlocal depth
        if frame.f_code.co_name in {"wait", "clear"}:
            frame.f_trace_opcodes = True
        elif frame.f_code.co_name != "_note":
            return None
        if what != "call" and depth < 5:
            depth += 1
            signal.raise_signal(number)
            depth -= 1
        return interrupt

    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        signal.raise_signal(number)
        first = event.wait(0)
        event.clear()
    finally:
        sys.settrace(before)
    event.clear()
    assert (first, event.is_set(), event.wait(0.0)) == (True, False, False)


def test_an_event_of_signals_ends_a_wait_and_knows_the_first__D13(number: signal.Signals) -> None:
    event = SignalEvent(number, signal.SIGUSR1)
    assert not event.wait(0)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    assert event.wait(30)
    signal.raise_signal(signal.SIGUSR1)
    assert event.is_set()
    assert event.number == signal.SIGALRM
    event.clear()
    assert not event.is_set()
    assert not event.wait(0)


def test_the_first_signal_is_noted_and_raised_at_the_end_of_the_block__D13() -> None:
    """Raised where it comes, it left the lock of an event taken: the service hung at its end."""
    noted: list[bool] = []

    def run(ends: Callable[[], object]) -> None:
        with stopped_by_signals(numbers=(signal.SIGTERM,)):
            with stop_noted() as stop:
                signal.raise_signal(signal.SIGTERM)
                noted.append(stop.wait(0))
                ends()
            pytest.fail("it goes on")

    def fail() -> None:
        raise ValueError("fails")

    def run_later() -> None:
        with stopped_by_signals(numbers=(signal.SIGTERM,)):
            with stop_noted() as stop:
                noted.append(not stop.is_set())
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Stopped) as stopped:
        run(lambda: None)
    assert stopped.value.number == signal.SIGTERM
    with pytest.raises(ValueError, match="fails"):
        run(fail)
    with pytest.raises(Stopped):
        run_later()
    assert noted == [True, True, True]


ENDS = """if True:
    import signal
    from tickwheel._stopping import stop_noted, stopped_by_signals

    with stopped_by_signals(lambda: print("ends")), stop_noted() as stop:
        signal.raise_signal(signal.SIGTERM)
        print("noted", flush=True)
        signal.raise_signal(signal.SIGINT)
"""


def test_a_second_signal_ends_the_process_also_where_the_first_is_noted__D13() -> None:
    script = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n{ENDS}"
    ended = subprocess.run([sys.executable, "-uc", script], capture_output=True, text=True, timeout=50)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("noted\nends\n", "", -signal.SIGINT)
