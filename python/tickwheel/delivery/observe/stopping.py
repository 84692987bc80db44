"""Ctrl-C, SIGTERM and a closed terminal (rule D13): the first signal stops a run, the second ends the process.

The first signal raises `KeyboardInterrupt`, once. While the run ends cleanly after it, no other exception interrupts
it. If the process was started with a signal ignored, as a shell does with `&` in a script, this signal stays ignored.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}


class Stopped(KeyboardInterrupt):
    """A signal stops the run. Its text is the signal's name."""


def stopped_by(stop: KeyboardInterrupt) -> str:
    """The name of the signal that stopped the run, for people: Python's own exception at a Ctrl-C has no text."""
    return str(stop) or "Ctrl-C"


@contextmanager
def stopped_by_signals(at_second: Callable[[], object] = lambda: None) -> Iterator[None]:
    """For the main thread. `at_second` is called right before the second signal ends the process."""

    def stop(number: int, _frame: object) -> None:
        for each in before:
            signal.signal(each, end)
        raise Stopped(_NAMES[signal.Signals(number)])

    def end(number: int, _frame: object) -> None:
        at_second()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_ignored() -> Iterator[None]:
    """For a moment in which a signal would leave something behind."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
