"""Runs cases, one after the other: `python -m fuzz FIRST_SEED SECONDS [THRESHOLD]`, the last one for the
collector. `python -m fuzz SEED` runs one case and tells its steps.

Each case is announced before it begins, so that after a crash the last line names the seed.
"""

import asyncio
import contextlib
import faulthandler
import gc
import logging
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

from fuzz.cases import ChildEnds, run_case
from fuzz.ledger import Ledger
from fuzz.objects import note_error

LONG_S = 60

ledger = Ledger(is_traced=False)


class Heard(logging.Handler):
    """What the timer's own logger is told."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            note_error(ledger, record.exc_info[1])


def hear_everything() -> None:
    """Every way in which a failure may be reported ends in the ledger."""

    def unraisable(about: "sys.UnraisableHookArgs") -> None:
        if about.exc_value is not None:
            note_error(ledger, about.exc_value)

    def in_thread(about: "threading.ExceptHookArgs") -> None:
        if about.exc_value is not None:
            note_error(ledger, about.exc_value)

    sys.unraisablehook, threading.excepthook = unraisable, in_thread
    logging.getLogger("tickwheel").addHandler(Heard())
    logging.getLogger("tickwheel").propagate = False


@contextlib.contextmanager
def loop_in_a_thread() -> Iterator[asyncio.AbstractEventLoop]:
    def failed(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        note_error(ledger, context.get("exception", AssertionError(context["message"])))

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(failed)
    loop.slow_callback_duration = LONG_S  # in development mode it is told of
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def main(first: int, seconds: float | None, threshold: int | None) -> None:
    global ledger
    if threshold is not None:
        gc.set_threshold(threshold)
    faulthandler.enable()
    warnings.filterwarnings("ignore", "This process", DeprecationWarning)  # a fork with threads is what is tested
    hear_everything()
    end = time.monotonic() + (seconds or 0)
    with loop_in_a_thread() as loop:
        for seed in range(first, 1 << 40):
            print(f"case {seed}", flush=True)
            ledger = Ledger(is_traced=seconds is None)
            run_case(seed, ledger, loop)
            if ledger.problems:
                sys.exit("\n".join(ledger.problems))
            if time.monotonic() >= end:
                break


if __name__ == "__main__":
    with contextlib.suppress(ChildEnds):
        seed, *options = sys.argv[1:]
        seconds, threshold = [*options, None, None][:2]
        main(int(seed), float(seconds) if seconds else None, int(threshold) if threshold else None)
