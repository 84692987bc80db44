"""Adding timers: with and without the garbage collector, and from a thread that is not the loop's."""

import gc
import threading
from typing import Any

from ..side import Side, Steps, nothing
from .plan import Plan, begin, since_ns

POLL_S = 0.05
"""How often to look whether another thread has finished; it says itself when that was."""


def add(side: Side, plan: Plan) -> Steps:
    """All of them, one by one, their handles kept, and the turn in which a loop takes them in."""
    delays = plan.delays(side)
    handles: list[Any] = [None] * plan.count
    add = side.add
    started_ns = begin()
    for index, delay in enumerate(delays):
        handles[index] = add(delay, nothing)
    yield 0
    return {"add": since_ns(started_ns) / plan.count}


def add_gc_off(side: Side, plan: Plan) -> Steps:
    """The same without a collector that goes through all handles again and again."""
    gc.disable()
    figures = yield from add(side, plan)
    return {"add, GC off": figures["add"]}


def add_from_another_thread(side: Side, plan: Plan) -> Steps:
    """From the first call in the other thread until the timer has them all."""
    delays = plan.delays(side)
    took_ns: list[int] = []

    def add_all() -> None:
        add, hand_over = side.add, side.hand_over
        started_ns = begin()

        def end() -> None:
            took_ns.append(since_ns(started_ns))

        if hand_over is None:
            for delay in delays:
                add(delay, nothing)
            end()
        else:
            for delay in delays:
                hand_over(add, delay, nothing)
            # One turn after the last of them, in which twisted puts it into its heap.
            hand_over(hand_over, end)

    threading.Thread(target=add_all, daemon=True).start()
    while not took_ns:
        yield POLL_S
    return {"add from another thread": took_ns[0] / plan.count}
