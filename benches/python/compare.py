"""Measure the same work on tickwheel's `SystemTimer` and on asyncio, in one process and in turn.

Each repeat does all of the work once on either side; the sides swap places from repeat to repeat, and the table shows
medians. The garbage collector stays on. Delays are spread over an hour, after a first minute in which nothing is due.

- *add*: `timer.after(delay_ms, callback)` against `loop.call_later(delay_s, callback)`, at `--count` timers.
- *cancel*: all of those in random order, the calls alone. asyncio only marks its handle here and pays for the clean-up
  in a later turn of the loop; *rolling* counts that in.
- *add, TimerTask* and *add_many*: `timer.add(TimerTask(...))` and `timer.add_many(delays_ms, callback)`, per timer. As
  asyncio has one way to add, its figure is that of *add*.
- *rolling*: add a timer and cancel the one added 1,000 before it; the asyncio loop gets a turn every 1,000 pairs.
- *burst*: `--count` callbacks due at one instant, in fires per second from that instant to the last of them.
- *memory*: growth of the resident set per pending timer, in a process of its own; the list of handles is not counted.

    python benches/python/compare.py --count 1000000 --repeats 5
"""

import argparse
import asyncio
import gc
import itertools
import random
import statistics
import subprocess
import sys
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tickwheel import SystemTimer, TaskBatch, TimerTask

ROLLING_LIVE = 1000
ADD, CANCEL, ADD_TASK, ADD_MANY = "add", "cancel, random order", "add, TimerTask", "add_many"
ROLLING, BURST = "rolling add + cancel", "burst"


class Workload:
    """The delays of `count` timers in both units, and a random order in which to cancel them."""

    def __init__(self, count: int) -> None:
        source = random.Random(count)
        self.count = count
        self.delays_ms = [source.randrange(60_000, 3_660_000) for _ in range(count)]
        self.delays_s = [delay_ms / 1000 for delay_ms in self.delays_ms]
        self.cancel_order = source.sample(range(count), count)

    def per_timer_ns(self, work: Callable[[], object]) -> float:
        """Do `work`, which touches every timer once, and share its time out."""
        gc.collect()
        started_ns = time.perf_counter_ns()
        work()
        return (time.perf_counter_ns() - started_ns) / self.count


def nothing(*_arguments: object) -> None:
    """Stand for a callback that is never due here."""


def measure_tickwheel(workload: Workload) -> dict[str, float]:
    figures = tickwheel_add_and_cancel(workload)
    figures[ADD_TASK] = tickwheel_add_tasks(workload)
    figures[ADD_MANY] = tickwheel_add_many(workload)
    figures[ROLLING] = tickwheel_rolling(workload)
    figures[BURST] = tickwheel_burst(workload.count, figures[ADD])
    return figures


def measure_asyncio(workload: Workload) -> dict[str, float]:
    figures = asyncio_add_and_cancel(workload)
    figures[ADD_TASK] = figures[ADD_MANY] = figures[ADD]
    figures[ROLLING] = workload.per_timer_ns(lambda: asyncio.run(asyncio_rolling(workload)))
    figures[BURST] = asyncio.run(asyncio_burst(workload.count, figures[ADD]))
    return figures


def tickwheel_add_and_cancel(workload: Workload) -> dict[str, float]:
    tasks: list[TimerTask] = []

    def add() -> None:
        tasks.extend([timer.after(delay_ms, nothing) for delay_ms in workload.delays_ms])

    def cancel() -> None:
        for task in in_order:
            task.cancel()

    with SystemTimer("compare") as timer:
        add_ns = workload.per_timer_ns(add)
        in_order = [tasks[index] for index in workload.cancel_order]
        return {ADD: add_ns, CANCEL: workload.per_timer_ns(cancel)}


def asyncio_add_and_cancel(workload: Workload) -> dict[str, float]:
    handles: list[asyncio.TimerHandle] = []

    def add() -> None:
        handles.extend([loop.call_later(delay_s, nothing) for delay_s in workload.delays_s])

    def cancel() -> None:
        for handle in in_order:
            handle.cancel()

    loop = asyncio.new_event_loop()
    add_ns = workload.per_timer_ns(add)
    in_order = [handles[index] for index in workload.cancel_order]
    cancel_ns = workload.per_timer_ns(cancel)
    loop.close()
    return {ADD: add_ns, CANCEL: cancel_ns}


def tickwheel_add_tasks(workload: Workload) -> float:
    tasks: list[TimerTask] = []

    def add() -> None:
        tasks.extend([TimerTask(delay_ms, nothing) for delay_ms in workload.delays_ms])
        for task in tasks:
            timer.add(task)

    with SystemTimer("compare") as timer:
        add_ns = workload.per_timer_ns(add)
        timer.cancel_many(tasks)
    return add_ns


def tickwheel_add_many(workload: Workload) -> float:
    delays_ms = array("q", workload.delays_ms)

    batches: list[TaskBatch] = []
    with SystemTimer("compare") as timer:
        add_ns = workload.per_timer_ns(lambda: batches.append(timer.add_many(delays_ms, nothing)))
        batches[0].cancel_all()
    return add_ns


def tickwheel_rolling(workload: Workload) -> float:
    def roll() -> None:
        live: deque[TimerTask] = deque()
        for delay_ms in workload.delays_ms:
            live.append(timer.after(delay_ms, nothing))
            if len(live) > ROLLING_LIVE:
                live.popleft().cancel()

    with SystemTimer("compare") as timer:
        return workload.per_timer_ns(roll)


async def asyncio_rolling(workload: Workload) -> None:
    loop = asyncio.get_running_loop()
    live: deque[asyncio.TimerHandle] = deque()
    for done, delay_s in enumerate(workload.delays_s, start=1):
        live.append(loop.call_later(delay_s, nothing))
        if len(live) > ROLLING_LIVE:
            live.popleft().cancel()
        if done % ROLLING_LIVE == 0:
            await asyncio.sleep(0)


def tickwheel_burst(count: int, add_ns: float) -> float:
    fire = itertools.count().__next__
    ended = threading.Event()
    ended_s = 0.0

    def end() -> None:
        nonlocal ended_s
        ended_s = time.monotonic()
        ended.set()

    gc.collect()
    with SystemTimer("burst") as timer:
        due_s = burst_due_s(count, add_ns)
        for _ in range(count):
            timer.at(due_s * 1000, fire)
        timer.at(due_s * 1000, end)
        check_still_before(due_s)
        ended.wait()
    return count / (ended_s - due_s)


async def asyncio_burst(count: int, add_ns: float) -> float:
    fire = itertools.count().__next__
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[float] = loop.create_future()
    gc.collect()
    due_s = burst_due_s(count, add_ns)
    for _ in range(count):
        loop.call_at(due_s, fire)
    # A heap does not keep the order of equal instants, so the end is a microsecond later.
    loop.call_at(due_s + 1e-6, lambda: ended.set_result(time.monotonic()))
    check_still_before(due_s)
    return count / (await ended - due_s)


def burst_due_s(count: int, add_ns: float) -> float:
    """Give an instant before which `count` timers are added, twice the time for it and half a second from now."""
    return time.monotonic() + 0.5 + 2 * count * add_ns / 1e9


def check_still_before(due_s: float) -> None:
    if time.monotonic() >= due_s:
        sys.exit("burst: the timers were due before all were added; run it on a quieter machine")


def bytes_per_timer(side: str, count: int) -> float:
    """Ask a new process, as this one has free memory from earlier work."""
    command = [sys.executable, __file__, "--count", str(count), "--memory-of", side]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def growth_per_timer(side: str, count: int) -> float:
    workload = Workload(count)
    handles: list[Any] = [None] * count
    if side == "tickwheel":
        with SystemTimer("memory") as timer:
            before = resident_bytes()
            for index, delay_ms in enumerate(workload.delays_ms):
                handles[index] = timer.after(delay_ms, nothing)
            return (resident_bytes() - before) / count
    loop = asyncio.new_event_loop()
    before = resident_bytes()
    for index, delay_s in enumerate(workload.delays_s):
        handles[index] = loop.call_later(delay_s, nothing)
    growth = (resident_bytes() - before) / count
    loop.close()
    return growth


def resident_bytes() -> int:
    gc.collect()
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def print_row(work: str, unit: str, ours: float, theirs: float, ratio: float) -> None:
    print(f"{work:<22} {unit:<12} {ours:>12,.0f} {theirs:>12,.0f} {ratio:>7.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare tickwheel with asyncio on the same work.")
    parser.add_argument("--count", type=int, default=1_000_000, help="timers in each piece of work")
    parser.add_argument("--repeats", type=int, default=5, help="how often each side does the work")
    parser.add_argument("--memory-of", choices=("tickwheel", "asyncio"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        print(growth_per_timer(options.memory_of, options.count))
        return

    workload = Workload(options.count)
    sides = [("tickwheel", measure_tickwheel), ("asyncio", measure_asyncio)]
    runs: dict[str, list[dict[str, float]]] = {name: [] for name, _ in sides}
    for _ in range(options.repeats):
        for name, measure in sides:
            runs[name].append(measure(workload))
        sides.reverse()

    print(f"{options.count:,} timers, medians of {options.repeats}; the ratio says how many times better tickwheel is")
    print(f"{'work':<22} {'unit':<12} {'tickwheel':>12} {'asyncio':>12} {'ratio':>7}")
    for work in (ADD, CANCEL, ADD_TASK, ADD_MANY, ROLLING):
        ours, theirs = (statistics.median(run[work] for run in runs[name]) for name in ("tickwheel", "asyncio"))
        print_row(work, "ns", ours, theirs, theirs / ours)
    ours, theirs = (statistics.median(run[BURST] for run in runs[name]) for name in ("tickwheel", "asyncio"))
    print_row(BURST, "fires/s", ours, theirs, ours / theirs)
    ours, theirs = (bytes_per_timer(name, options.count) for name in ("tickwheel", "asyncio"))
    # At a small count the resident set may not grow at all.
    print_row("memory", "bytes/timer", ours, theirs, theirs / ours if ours > 0 else float("nan"))


if __name__ == "__main__":
    main()
