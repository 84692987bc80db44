"""The cost of pending timers while nothing is due: memory, time of the garbage collector, CPU time."""

import gc
import time
from pathlib import Path
from typing import Any

from ..side import Side, Steps, nothing
from .plan import Plan, begin, since_ns

IDLE_S = 3.0
SETTLE_S = 0.2
"""The time before an idle measurement starts, so that all threads sleep by then."""


def pending(side: Side, plan: Plan) -> Steps:
    """Measure the growth of the resident set (without the list of handles), one full collection, then idle time."""
    delays = plan.delays(side)
    handles: list[Any] = [None] * plan.count
    add = side.add
    before = resident_bytes()
    for index, delay in enumerate(delays):
        handles[index] = add(delay, nothing)
    yield 0
    grown = resident_bytes() - before

    started_ns = time.perf_counter_ns()
    gc.collect()
    collected_ns = since_ns(started_ns)

    yield SETTLE_S
    started_s, started_cpu_ns = time.monotonic(), time.process_time_ns()
    yield IDLE_S * plan.pace
    cpu_us = (time.process_time_ns() - started_cpu_ns) / 1000
    return {
        "bytes per timer": grown / plan.count,
        "gc.collect with 1M pending": collected_ns / 1e6,
        "idle CPU": cpu_us / (time.monotonic() - started_s),
    }


def resident_bytes() -> int:
    """The resident set of the process after a garbage collection."""
    begin()
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))
