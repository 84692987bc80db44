"""Timers that fire: all at one instant, or one after the other; and how late each of them is."""

import itertools
import statistics
import time
from collections.abc import Callable, Generator

from ..side import Side, Steps
from .plan import Plan

SPREAD_S = 1.0
LATENESS_S = 2.0
ORDERED = 10_000
"""How many callbacks the second burst has, which checks their order."""

BEFORE_S = 0.02
"""The time from the reading of the CPU clock to the first instant."""

GIVE_UP_S = 60.0


class Calls:
    """A callback that counts its calls, in C if the side allows it: its own time is almost no part of a figure."""

    def __init__(self, side: Side) -> None:
        self._count = itertools.count()
        self.callback: Callable[[], object] = self._call if side.wants_functions else self._count.__next__

    def _call(self) -> None:
        next(self._count)

    @property
    def made(self) -> int:
        """How many calls there were so far. Only `repr` reads an `itertools.count` without counting."""
        return int(repr(self._count).strip("count()"))

    def wait_for(self, count: int, poll_s: float) -> Generator[float, None, None]:
        """Wait until there were `count` calls."""
        give_up_s = time.monotonic() + GIVE_UP_S
        while self.made < count:
            if time.monotonic() > give_up_s:
                raise RuntimeError(f"{self.made} of {count} callbacks came within a minute")
            yield poll_s

    def check(self, count: int) -> Generator[float, None, None]:
        """Assert that there were `count` calls, and that no more come."""
        yield 0.05
        assert self.made == count, f"{self.made} calls of {count} timers"


def burst_fire(side: Side, plan: Plan) -> Steps:
    """The time from the instant at which all are due to the last callback."""
    calls = Calls(side)
    ended_s: list[float] = []

    def end() -> None:
        # With several threads, or a heap that does not keep the order, some callbacks may come later.
        if calls.made == plan.count:
            ended_s.append(side.clock())
        was_called.append(True)

    was_called: list[bool] = []
    # A whole millisecond, because uvloop rounds to whole milliseconds.
    due_s = round((yield from plan.lead_s(side)) + side.clock(), 3)
    for _ in range(plan.count):
        side.at(due_s, calls.callback)
    side.at(due_s + 1e-6, end)
    yield 0
    plan.check_still_before(side, due_s)
    yield due_s - side.clock()
    while not was_called:
        yield 0.02
    yield from calls.wait_for(plan.count, 0.001)
    took_s = (ended_s[0] if ended_s else side.clock()) - due_s
    yield from calls.check(plan.count)
    if side.keeps_order:
        yield from check_order(side, min(plan.count, ORDERED))
    return {"burst fire": plan.count / took_s}


def check_order(side: Side, count: int) -> Generator[float, None, None]:
    """Assert that callbacks of one instant run in the order in which they were added."""
    seen: list[int] = []
    due_s = side.clock() + 0.2
    for number in range(count):
        side.at(due_s, seen.append, number)
    while len(seen) < count:
        yield 0.02
    assert seen == list(range(count)), "not in the order of add"


def spread_fire(side: Side, plan: Plan) -> Steps:
    """The CPU time of the process from just before the first of many random instants to after the last callback."""
    calls = Calls(side)
    span_us = int(SPREAD_S * plan.pace * 1e6)
    first_s = BEFORE_S + (yield from plan.lead_s(side)) + side.clock()
    for _ in range(plan.count):
        side.at(first_s + plan.source.randrange(span_us) / 1e6, calls.callback)
    yield 0
    plan.check_still_before(side, first_s - BEFORE_S)
    yield first_s - BEFORE_S - side.clock()
    started_ns = time.process_time_ns()
    yield first_s + span_us / 1e6 - side.clock()
    yield from calls.wait_for(plan.count, 0.01)
    took_ns = time.process_time_ns() - started_ns
    yield from calls.check(plan.count)
    return {"spread fire": took_ns / plan.count}


def lateness(side: Side, plan: Plan) -> Steps:
    """The time of each call minus its due instant. A call is early if it comes a microsecond or more before."""
    late_us: list[float] = []
    clock = side.clock

    def record(due_s: float) -> None:
        late_us.append((clock() - due_s) * 1e6)

    span_us = int(LATENESS_S * plan.pace * 1e6)
    first_s = (yield from plan.lead_s(side)) + clock()
    for _ in range(plan.count):
        due_s = first_s + plan.source.randrange(span_us) / 1e6
        side.at(due_s, record, due_s)
    plan.check_still_before(side, first_s)
    yield first_s + span_us / 1e6 - clock()
    while len(late_us) < plan.count:
        yield 0.1
    percentiles = statistics.quantiles(late_us, n=100, method="inclusive")
    early = sum(late <= -1 for late in late_us)
    return {"lateness p50": percentiles[49], "lateness p99": percentiles[98], "early": early}
