"""One case: builds a graph from its seed, does random things with it, drops it, and sees whether all of it goes."""

import asyncio
import contextlib
import gc
import importlib
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fuzz import making
from fuzz.acting import act, move, shut_timer, took_out
from fuzz.ledger import Ledger
from fuzz.objects import Node, note_error
from tickwheel import SystemTimer, TaskBatch, TickwheelError, Timer

interpreters: Any = importlib.import_module("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")

LIMIT_S = 20


class ChildEnds(BaseException):
    """A forked child leaves by the ordinary end of the interpreter."""


def run_case(seed: int, ledger: Ledger, loop: asyncio.AbstractEventLoop) -> None:
    """Adds what is wrong to `ledger.problems`. Raises `ChildEnds` in a child."""
    threads = native_threads()
    rng = random.Random(seed)
    with interrupted(ledger, rng):
        _live(rng, ledger, loop)
    ledger.is_quiet = True
    ledger.revived.clear()
    ledger.pools.clear()
    wait_until_gone(ledger, threads)
    ledger.check()


def _live(rng: random.Random, ledger: Ledger, loop: asyncio.AbstractEventLoop) -> None:
    roots: list[Any] = [making.node(ledger, rng)]
    threads: list[threading.Thread] = []
    for _ in range(rng.randint(10, 80)):
        holder = rng.choice([root for root in roots if isinstance(root, Node)] or [making.node(ledger, rng)])
        timers = [root for root in roots if isinstance(root, Timer)]
        step = rng.choices(
            [
                "timer",
                "purgatory",
                "entry",
                "act",
                "thread",
                "node",
                "drop",
                "drive",
                "collect",
                "sleep",
                "fork",
                "other",
            ],
            [3, 2, 10, 12, 2, 6, 6, 6, 3, 2, 0.3, 0.1],
        )[0]
        ledger.trace(f"{step} with node {holder.number}")
        try:
            if step == "timer":
                roots.append(making.timer(ledger, rng, holder, loop))
            elif step == "purgatory":
                roots.append(making.purgatory(ledger, rng, rng.choice([None, *timers]), holder))
            elif step == "entry" and timers:
                making.entry(ledger, rng, rng.choice(timers), holder)
            elif step == "act":
                act(holder, rng)
            elif step == "thread":
                threads.append(threading.Thread(target=act, args=(holder, random.Random(rng.random()))))
                threads[-1].start()
            elif step == "node":
                roots.append(making.node(ledger, rng, *rng.sample(roots, min(len(roots), 2))))
            elif step == "drop" and len(roots) > 1:
                roots.pop(rng.randrange(len(roots)))
            elif step == "drive" and timers:
                move(rng.choice(timers), rng)
            elif step == "collect":
                gc.collect()
            elif step == "sleep":
                time.sleep(rng.choice([0, 0.001, 0.004]))
            elif step == "fork":
                fork(ledger, rng, roots)
            elif step == "other":
                other_interpreter()
        except (TickwheelError, ValueError):
            pass
        except RuntimeError as error:
            if "advancing" not in str(error):  # in another thread
                raise
        del holder, timers
    for thread in threads:
        thread.join()
    if rng.random() < 0.5:
        for timer in roots:
            if isinstance(timer, Timer):
                shut_timer(ledger, timer, rng.choice([None, 1]))


def other_interpreter() -> None:
    """One that tries to import the module, and ends, as mod_wsgi makes and ends one."""
    kind = ("legacy",) if sys.version_info >= (3, 13) else ()
    other = interpreters.create(*kind) if kind else interpreters.create(isolated=False)
    try:
        interpreters.run_string(
            other,
            f"import sys\nsys.path[:] = {sys.path!r}\ntry:\n    import tickwheel\nexcept ImportError:\n    pass\n"
            "else:\n    raise SystemError('it was imported')",
        )
    finally:
        interpreters.destroy(other)


@contextlib.contextmanager
def interrupted(ledger: Ledger, rng: random.Random) -> Iterator[None]:
    """Now and then a signal's handler, or what is called before and after a collection, acts too."""
    inner, is_inside = random.Random(rng.random()), False

    def interrupt(*_: object) -> None:
        nonlocal is_inside
        alive = [node for ref in ledger.alive[:9] if isinstance(node := ref(), Node)]
        if alive and not is_inside and not ledger.is_quiet and inner.random() < 0.2:
            is_inside = True
            try:
                act(inner.choice(alive), inner, is_quick=True)
            except Exception as error:
                note_error(ledger, error)
            finally:
                is_inside = False

    how = rng.choice(["signal", "collection", "neither", "neither"])
    if how == "signal":
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    elif how == "collection":
        gc.callbacks.append(interrupt)
    try:
        yield
    finally:
        if how == "signal":
            signal.setitimer(signal.ITIMER_REAL, 0)
            # A last one may be on its way, and the interpreter reports one that comes to be ignored meanwhile.
            signal.signal(signal.SIGALRM, lambda *_: None)
        elif how == "collection":
            gc.callbacks.remove(interrupt)


def fork(ledger: Ledger, rng: random.Random, roots: list[Any]) -> None:
    """The child goes along the graph, drops it, makes a timer of its own, and ends."""
    pid = os.fork()
    if pid:
        return reap(ledger, pid)
    try:
        for root in roots:
            if isinstance(root, Node):
                act(root, rng)
        roots.clear()
        gc.collect()
        fired = threading.Event()
        with SystemTimer("child") as timer:
            timer.after(1, fired.set)
            assert fired.wait(LIMIT_S), "the child's own timer did not fire"
        assert not ledger.problems, ledger.problems
    except BaseException as error:
        print(f"in the child: {type(error).__name__}: {error}", flush=True)
        os._exit(3)
    if rng.random() < 0.5:
        os._exit(0)
    raise ChildEnds


def reap(ledger: Ledger, pid: int) -> None:
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            if status:
                ledger.problem(f"a child ended with {os.waitstatus_to_exitcode(status)}")
            return
        time.sleep(0.001)
    os.kill(pid, signal.SIGABRT)
    os.waitpid(pid, 0)
    ledger.problem("a child hung")


def wait_until_gone(ledger: Ledger, threads: int) -> None:
    """The graph is held no more: what can still fire fires, and then all is collected, and no thread is left."""
    end = time.monotonic() + LIMIT_S
    while True:
        end_what_is_far(ledger)
        gc.collect()
        left = sum(ref() is not None for ref in ledger.alive)
        if not left and native_threads() <= threads:
            return
        if time.monotonic() > end:
            break
        time.sleep(0.001)
    some = sorted(
        (repr(ref())[:150] for ref in ledger.alive if ref() is not None), key=lambda text: "Timer '" not in text
    )
    names = [(it / "comm").read_text().strip() for it in Path("/proc/self/task").iterdir()]
    ledger.problem(f"not collected: {left}, such as {some[:9]}; {len(names) - threads} threads too many of {names}")


def end_what_is_far(ledger: Ledger) -> None:
    """A timer that something drives lives until it is empty, held or not: an hour is too long for a test."""
    for ref, number, indices in ledger.far:
        if (scheduled := ref()) is None:
            continue
        if isinstance(scheduled, TaskBatch):
            ledger.note("cancelled", number, scheduled.cancel_many(indices))
        elif scheduled.cancel():
            ledger.note("cancelled", number)
            took_out(ledger, [scheduled])


def native_threads() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())
