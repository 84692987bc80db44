"""Adding timers: with and without the garbage collector, and from a thread that is not the loop's."""

import gc
import threading
from typing import Any

from ..side import Side, Steps, nothing
from .plan import Plan, begin, since_ns

POLL_S = 0.05
"""How often to check whether another thread has finished. The thread itself measures when that was."""


def add(side: Side, plan: Plan) -> Steps:
    """Add all timers one by one, keep their handles, and wait for the turn in which a loop takes them."""
    delays = plan.delays(side)
    handles: list[Any] = [None] * plan.count
    add = side.add
    started_ns = begin()
    for index, delay in enumerate(delays):
        handles[index] = add(delay, nothing)
    yield 0
    return {"add": since_ns(started_ns) / plan.count}


def add_gc_off(side: Side, plan: Plan) -> Steps:
    """The same without the garbage collector, which reads all handles again and again."""
    gc.disable()
    figures = yield from add(side, plan)
    return {"add, GC off": figures["add"]}


def add_from_another_thread(side: Side, plan: Plan) -> Steps:
    """The time from the first call in another thread until the timer has all of them."""
    delays = plan.delays(side)
    took_ns: list[int] = []

    def add_all() -> None:
        add, call_in_loop = side.add, side.call_in_loop
        started_ns = begin()

        def end() -> None:
            took_ns.append(since_ns(started_ns))

        if call_in_loop is None:
            for delay in delays:
                add(delay, nothing)
            end()
        else:
            for delay in delays:
                call_in_loop(add, delay, nothing)
            # One turn after the last add: in it twisted puts the last one into its heap.
            call_in_loop(call_in_loop, end)

    threading.Thread(target=add_all, daemon=True).start()
    while not took_ns:
        yield POLL_S
    return {"add from another thread": took_ns[0] / plan.count}
