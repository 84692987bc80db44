"""A heap with a lock and a thread, written by hand (`heap_timer`)."""

from ..side import Side
from .heap_timer import HeapTimer


def own_thread() -> Side:
    timer = HeapTimer()
    return Side(
        add=timer.call_later,
        cancel=timer.cancel,
        at=timer.call_at,
        keeps_order=True,
        after_cancel="a cancelled entry stays in its heap, without its callback, until it is due",
    )
