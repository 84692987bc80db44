"""Signals that stop a run: `tickwheel._stopping` (rule D13)."""

import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import pytest

from tickwheel._event import Event
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
    cli.main()
"""


@pytest.mark.parametrize(("args", "code"), [(["deliver", "-"], 130), (["serve", "--store", "s.db"], 0)])
def test_a_signal_that_is_dropped_while_a_command_is_imported_ends_it__D13(args: list[str], code: int) -> None:
    command = [sys.executable, "-c", IMPORTED, *args]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:  # no end of the input: without the signal it waits for ever
            assert process.wait(30) == code
        finally:
            process.kill()


@pytest.fixture
def number() -> Iterator[signal.Signals]:
    """Not SIGALRM, which ends a test that takes too long."""
    before = signal.getsignal(signal.SIGUSR2)
    yield signal.SIGUSR2
    signal.signal(signal.SIGUSR2, before)


@contextmanager
def interrupted(names: set[str], at: int, interrupt: Callable[[], None]) -> Iterator[None]:
    """Calls it at the step with this number, counted over all functions with these names."""
    steps = 0

    def trace(frame: FrameType, what: str, _given: Any) -> Any:
        nonlocal steps
        if frame.f_code.co_name not in names or "_event" not in frame.f_globals["__name__"]:
            return None
        frame.f_trace_opcodes = True
        steps += what == "opcode"
        if steps == at and what == "opcode":
            interrupt()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


STEPS = range(1, 60)  # more than any call below has


def in_a_thread(work: Callable[[], None]) -> None:
    """An exception that comes in the middle of handling another one leaves traces in its thread."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.parametrize("name", ["set", "wait", "clear"])
def test_an_event_is_usable_after_an_exception_anywhere__D13(name: str) -> None:
    """`threading.Event` left its lock taken: the next to want it waited for ever."""

    def fail() -> None:
        raise OSError("a handler fails")

    calls = {"set": Event.set, "wait": lambda event: event.wait(0), "clear": Event.clear}
    failed = 0

    def call(event: Event, at: int) -> None:
        nonlocal failed
        try:
            with interrupted({name}, at, fail):
                calls[name](event)
        except OSError:
            failed += 1

    for at in STEPS:
        event = Event()
        in_a_thread(partial(call, event, at))
        in_a_thread(event.set)
        assert event.wait(20)
    assert failed > 3


@pytest.mark.parametrize("name", ["set", "wait"])
def test_a_handler_may_set_the_event_that_it_interrupts__D9(name: str) -> None:
    """`threading.Event.set` waited for itself: two SIGHUPs at once stopped a service for ever."""

    def call(event: Event, at: int) -> None:
        with interrupted({name}, at, event.set):
            event.set() if name == "set" else event.wait(0)

    for at in STEPS:
        event = Event()
        in_a_thread(partial(call, event, at))
        event.set()
        assert event.wait(0)
        assert event.wait(0)
        event.clear()
        assert not event.wait(0)


def test_an_event_wakes_all_that_wait() -> None:
    event = Event()
    threads = [threading.Thread(target=event.wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    event.set()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)


def test_an_event_of_signals_ends_a_wait_and_knows_the_first__D13(number: signal.Signals) -> None:
    event = SignalEvent(number)
    assert not event.wait(0)
    assert not event.wait(-1)
    main = threading.main_thread().ident
    assert main is not None
    thread = threading.Timer(0.01, signal.pthread_kill, [main, number])
    thread.start()
    assert event.wait(30)
    event.note(signal.SIGINT)
    assert event.number == number
    event.clear()
    assert not event.is_set()
    assert not event.wait(0)
    thread.join(20)


@pytest.mark.timeout(20)
def test_a_wait_ends_though_a_handler_takes_longer_than_what_is_left_of_it__D13(number: signal.Signals) -> None:
    """With a `SimpleQueue` it never ended before Python 3.13, and Ctrl-C did not stop a run on a busy machine."""
    called = False

    def handler(*_: object) -> None:
        nonlocal called
        called = True
        while time.monotonic() < end_s:
            pass

    signal.signal(number, handler)
    end_s = time.monotonic() + 0.2
    main = threading.main_thread().ident
    assert main is not None
    thread = threading.Timer(0.01, signal.pthread_kill, [main, number])
    thread.start()
    assert not Event().wait(0.1)
    thread.join(20)
    assert called


def test_a_terminal_that_closes_may_say_so_twice__D13() -> None:
    """Also after the run, while the command prints its counts, inside of `tickwheel.cli`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a process under nohup ignores it
    told: list[object] = []

    def run() -> None:
        with stopped_by_signals():
            try:
                signal.raise_signal(signal.SIGHUP)
            finally:
                told.append(signal.getsignal(signal.SIGHUP))

    try:
        with stopped_by_signals():
            with pytest.raises(Stopped):
                run()
            told.append(signal.getsignal(signal.SIGHUP))
        told.append(signal.getsignal(signal.SIGHUP))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert told == [signal.SIG_IGN, signal.SIG_IGN, signal.SIG_DFL]


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

    def nested() -> None:
        with stop_noted():
            pass
        noted.append(True)

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
    with pytest.raises(Stopped):
        run(nested)
    assert noted == [True, True, True, True, True]


ENDS = """if True:
    import signal
    from tickwheel._stopping import stop_noted, stopped_by_signals

    real = signal.raise_signal

    def ignored_by_the_system(number):
        if signal.getsignal(number) != signal.SIG_DFL:
            real(number)

    if IS_FIRST_PROCESS:
        signal.raise_signal = ignored_by_the_system
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with stopped_by_signals(lambda: print("ends")), stop_noted() as stop:
        signal.raise_signal(signal.SIGTERM)
        print("noted")
        signal.raise_signal(signal.SIGINT)
    print("goes on")
"""


@pytest.mark.parametrize(("is_first_process", "code"), [(False, -signal.SIGINT), (True, 128 + signal.SIGINT)])
def test_a_second_signal_ends_the_process_also_where_the_first_is_noted__D13(is_first_process: bool, code: int) -> None:
    """The system ends the first process of a container by no signal without a handler."""
    script = f"IS_FIRST_PROCESS = {is_first_process}\n{ENDS}"
    ended = subprocess.run([sys.executable, "-uc", script], capture_output=True, text=True, timeout=50)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("noted\nends\n", "", code)
