"""`threading.Timer`: a thread for each timer, which ends a moment after its cancel."""

import threading
import time
from collections.abc import Callable, Iterator

from ..side import Side


def one_each() -> Side:
    return Side(add=_add, cancel=threading.Timer.cancel, at=_at, drive=_drive, freed="in a turn")


def _add(delay_s: float, callback: Callable[..., object], *args: object) -> threading.Timer:
    timer = threading.Timer(delay_s, callback, args)
    timer.daemon = True
    timer.start()
    return timer


def _at(due_s: float, callback: Callable[..., object], *args: object) -> threading.Timer:
    return _add(due_s - time.monotonic(), callback, *args)


def _drive(work: Iterator[float]) -> None:
    for seconds in work:
        if seconds > 0:
            time.sleep(seconds)
        else:
            _join_cancelled()


def _join_cancelled() -> None:
    """Wait until the threads of cancelled timers have ended: what a turn is for a loop."""
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer) and thread.finished.is_set():
            thread.join()
