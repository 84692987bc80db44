"""Ctrl-C, SIGTERM and a closed terminal (rule D13): the first signal stops a run, the second ends the process.

The first signal raises `Stopped` in the main thread, once. While the run ends cleanly after it, no other exception
interrupts it. If the process was started with a signal ignored, as a shell does with `&` in a script, this signal stays
ignored.

An exception in the middle of a call may leave a lock taken, and the next to want it hangs. So the loops of a run look
for the signal themselves (`stop_noted`). It interrupts only what may wait for long: a start, a database, the end.

Python drops an exception in a destructor or in the callback of a weak reference, and an import calls such callbacks. A
signal that comes at that moment is given again.
"""

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tickwheel._event import Event

REQUESTS = (signal.SIGINT, signal.SIGTERM)
_ALL = (*REQUESTS, signal.SIGHUP)
_NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
_GIVEN_AGAIN_AFTER_S = 0.01


class Stopped(KeyboardInterrupt):
    """A signal stops the run. Its text is the signal's name."""

    def __init__(self, number: int) -> None:
        super().__init__(_NAMES[signal.Signals(number)])
        self.number = number


def exit_code(stop: KeyboardInterrupt) -> int:
    """130; 0 if SIGTERM stops the service, which is how systemd and Kubernetes end it."""
    is_service = sys.argv[1:2] == ["serve"]
    return 0 if is_service and isinstance(stop, Stopped) and stop.number == signal.SIGTERM else 130


def stopped_by(stop: KeyboardInterrupt) -> str:
    """The name of the signal that stopped the run, for people: Python's own exception at a Ctrl-C has no text."""
    return str(stop) or "Ctrl-C"


class SignalEvent(Event):
    """An event that signals set. Make it in the main thread. `number`: the first signal, or 0."""

    def __init__(self, *numbers: signal.Signals) -> None:
        super().__init__()
        self.number = 0
        _handle(dict.fromkeys(numbers, self.note))

    def note(self, number: int, _frame: object = None) -> None:
        """The handler."""
        if not self.is_set():
            self.number = number
            self.set()


_noting: SignalEvent | None = None
_depth = 0  # blocks of `stopped_by_signals`


@contextmanager
def stop_noted() -> Iterator[SignalEvent]:
    """For the main thread, inside of `stopped_by_signals`: the first signal only sets this event. At the end of the
    block it raises `Stopped`, unless another exception ends the block.
    """
    global _noting
    outer, event = _noting, SignalEvent()
    _noting = event
    try:
        yield event
    finally:
        _noting = outer
        if outer is not None and event.is_set():
            outer.note(event.number)
    if outer is None and event.is_set():
        raise Stopped(event.number)


@contextmanager
def stopped_by_signals(
    at_second: Callable[[], object] = lambda: None, numbers: tuple[signal.Signals, ...] = _ALL
) -> Iterator[None]:
    """For the main thread. `at_second` is called right before the second signal ends the process."""
    global _depth
    has_come = False

    def stop(number: int, _frame: object) -> None:
        nonlocal has_come
        has_come = True
        # A terminal that closes may send SIGHUP twice, and a session that ends SIGTERM and SIGHUP. That is no hurry.
        _handle({each: signal.SIG_IGN if each == signal.SIGHUP else end for each in before})
        if _noting is None:
            raise Stopped(number)
        _noting.note(number)

    def end(number: int, _frame: object) -> None:
        at_second()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
        os._exit(128 + number)  # the system does not end the first process of a container so

    def note(dropped: "sys.UnraisableHookArgs") -> None:
        if not isinstance(dropped.exc_value, Stopped):
            hook(dropped)
            return
        _handle(dict.fromkeys(before, stop))
        # Later and elsewhere, as this call is still inside of what drops exceptions. A `Thread` would take locks that
        # the interrupted code may hold.
        _thread.start_new_thread(_give_again, (dropped.exc_value.number,))

    found = {number: signal.getsignal(number) for number in numbers}
    before = {number: handler for number, handler in found.items() if handler is not signal.SIG_IGN}
    hook, sys.unraisablehook = sys.unraisablehook, note
    _handle(dict.fromkeys(before, stop))
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if has_come and _depth and signal.SIGHUP in before:  # for the block around this one it would be a first signal
            before[signal.SIGHUP] = signal.SIG_IGN
        _handle(before)
        sys.unraisablehook = hook


@contextmanager
def signals_ignored() -> Iterator[None]:
    """For a moment in which a signal would leave something behind."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _ALL}
    try:
        yield
    finally:
        _handle(before)


def _handle(handlers: dict[signal.Signals, "signal._HANDLER"]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _give_again(number: int) -> None:
    time.sleep(_GIVEN_AGAIN_AFTER_S)
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, number)
