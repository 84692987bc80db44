"""Cancelling timers: the calls, and the time until nothing of the cancelled ones remains."""

import random
import weakref
from collections import deque
from typing import Any

from ..side import Side, Steps, nothing
from .plan import Plan, begin, since_ns

LIVE = 1000
"""How many timers are pending while pairs are added and cancelled, and how many pairs are in a turn of the loop."""

SAMPLE_EVERY = 10_000
SAMPLES_AT_LEAST = 10


class Sample:
    """An argument of a callback that shows when it is released."""

    __slots__ = ("__weakref__",)


def cancel(side: Side, plan: Plan) -> Steps:
    """Cancel all in random order, drop each handle after its cancel, and wait for the turn in which a loop cleans up.

    Some timers have a sample as their argument. It must be freed when the side's `freed` says, without a garbage
    collection.
    """
    handles: list[Any] = [None] * plan.count
    every = max(1, min(SAMPLE_EVERY, plan.count // SAMPLES_AT_LEAST))
    samples: dict[int, weakref.ref[Sample]] = {}
    places = plan.source.sample(range(plan.count), plan.count)

    def add_with_sample(place: int, delay: float) -> Any:
        sample = Sample()
        samples[place] = weakref.ref(sample)
        return side.add(delay, nothing, sample)

    for place, delay in zip(places, plan.delays(side), strict=True):
        handles[place] = add_with_sample(place, delay) if place % every == 0 else side.add(delay, nothing)
    del places
    yield 0

    cancel, pop, held_at_once = side.cancel, handles.pop, 0
    started_ns = begin()
    for place in reversed(range(0, plan.count, every)):
        for _ in range(len(handles) - place):
            cancel(pop())
        held_at_once += samples[place]() is not None
    yield 0
    took_ns = since_ns(started_ns)

    held_later = sum(sample() is not None for sample in samples.values())
    expected = {"at once": (0, 0), "in a turn": (held_at_once, 0), "when due": (len(samples), len(samples))}
    assert (held_at_once, held_later) == expected[side.freed], f"{held_at_once}, {held_later} held: {side.freed}?"
    assert side.wheel is None or len(side.wheel) == 0
    return {"cancel": took_ns / plan.count}


def cancel_calls_alone(side: Side, plan: Plan) -> Steps:
    """Only the calls, in random order. The handles are kept, and no turn follows."""
    handles = [side.add(delay, nothing) for delay in plan.delays(side)]
    random.Random(2).shuffle(handles)
    yield 0
    cancel = side.cancel
    started_ns = begin()
    for handle in handles:
        cancel(handle)
    return {"cancel, calls alone": since_ns(started_ns) / plan.count}


def rolling_pair(side: Side, plan: Plan) -> Steps:
    """Add a timer, and cancel the one that was added 1,000 adds before. A turn follows after every 1,000 pairs."""
    delays = plan.delays(side)
    add, cancel = side.add, side.cancel
    live = deque(add(delay, nothing) for delay in delays[:LIVE])
    yield 0
    started_ns = begin()
    for start in range(0, plan.count, LIVE):
        for delay in delays[start : start + LIVE]:
            live.append(add(delay, nothing))
            cancel(live.popleft())
        yield 0
    return {"rolling pair": since_ns(started_ns) / plan.count}
