"""Measure the purgatory under a load like that of Kafka's own purgatory test, and the cost of one wait.

- *load*: requests arrive as a Poisson process and wait under three of 100 keys. The answer of a request comes after a
  log-normal time, given by its median and upper quartile. Then `check_and_complete` of one of its keys tries every
  request that waits there. A request that takes longer than the time-out expires. Each line shows the rate that was
  asked and the rate that was reached, how many expired, and the CPU time per request: of everything, and of the load
  generator alone (the same events without the purgatory).
- *bytes*: the growth of the resident set per waiting request, with the request object, in a process of its own.
- *one wait*: an operation is watched under one of 10,000 keys and completed by its key, in turn with `add` and `cancel`
  of a `SystemTimer` in the same run; medians. The operation's own methods are C functions that do nothing, so they take
  hardly any time.

With `--check` the exit code is 1 if one wait costs more than three times the timer's add and cancel.

    python benches/python/purgatory.py --rates 1000 5000 20000 --seconds 5
"""

import argparse
import gc
import math
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tickwheel import DelayedOperation, DelayedOperationPurgatory, SystemTimer, TimerTask

KEYS = 100
KEYS_PER_REQUEST = 3
UPPER_QUARTILE = 0.6745
"""Of the standard normal distribution."""

WAITS = 10_000
MOST_RATIO = 3.0
HOUR_MS = 3_600_000


class Request(DelayedOperation):
    """Waits until its answer is there."""

    __slots__ = ("is_answered", "keys")

    def __init__(self, timeout_ms: float, keys: list[int]) -> None:
        super().__init__(timeout_ms)
        self.keys = keys
        self.is_answered = False

    def try_complete(self) -> bool:
        """Complete it if its answer is there."""
        return self.is_answered and self.force_complete()


class Nothing(DelayedOperation):
    """An operation with the cheapest possible methods."""

    try_complete = bool
    on_complete = bool  # type: ignore[assignment]


@dataclass(frozen=True)
class Arrival:
    """When a request arrives, with which keys, and how long its answer takes."""

    at_s: float
    keys: list[int]
    answer_ms: float


def plan(rate: float, seconds: float, p50_ms: float, p75_ms: float) -> list[Arrival]:
    source = random.Random(rate)
    mu, sigma = math.log(p50_ms), math.log(p75_ms / p50_ms) / UPPER_QUARTILE
    arrivals: list[Arrival] = []
    at_s = source.expovariate(rate)
    while at_s < seconds:
        arrivals.append(Arrival(at_s, source.sample(range(KEYS), KEYS_PER_REQUEST), source.lognormvariate(mu, sigma)))
        at_s += source.expovariate(rate)
    return arrivals


def play(arrivals: list[Arrival], arrive: Callable[[Arrival], object]) -> float:
    """Call `arrive` for each at its time, or as soon as possible. Returns the seconds that this took."""
    started = time.perf_counter()
    for arrival in arrivals:
        wait_s = started + arrival.at_s - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        arrive(arrival)
    return time.perf_counter() - started


def generator_us(arrivals: list[Arrival]) -> float:
    """The CPU time of the load alone, per request."""
    with SystemTimer("world") as world:
        started = time.process_time()
        play(arrivals, lambda arrival: world.after(arrival.answer_ms, len, arrival.keys))
        world.shutdown()
        return (time.process_time() - started) / len(arrivals) * 1e6


def run_load(rate: float, arguments: argparse.Namespace) -> str:
    arrivals = plan(rate, arguments.seconds, arguments.p50_ms, arguments.p75_ms)
    of_generator_us = generator_us(arrivals)
    with SystemTimer("world") as world, DelayedOperationPurgatory("requests") as purgatory:

        def answer(request: Request) -> None:
            request.is_answered = True
            purgatory.check_and_complete(request.keys[0])

        def arrive(arrival: Arrival) -> None:
            request = Request(arguments.timeout_ms, arrival.keys)
            world.after(arrival.answer_ms, answer, request)
            purgatory.try_complete_else_watch(request, arrival.keys)

        started = time.process_time()
        took_s = play(arrivals, arrive)
        while len(purgatory) > 0:  # every request ends by its time-out
            time.sleep(0.01)
        cpu_us = (time.process_time() - started) / len(arrivals) * 1e6
        stats = purgatory.stats()
        assert (stats["watched"], stats["delayed"], stats["keys"]) == (0, 0, 0), "nothing remains"
        assert stats["completed"] + stats["expired"] == len(arrivals), "every request ended once"
    expired = stats["expired"] / len(arrivals)
    waited_ms = stats["waited_ms"] / len(arrivals)
    return (
        f"{rate:9,.0f} {len(arrivals) / took_s:9,.0f} {expired:8.1%} {waited_ms:9.1f} {cpu_us:8.1f} "
        f"{of_generator_us:10.1f}"
    )


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * 4096


def print_bytes(count: int) -> None:
    source = random.Random(count)
    keys = [source.sample(range(KEYS), KEYS_PER_REQUEST) for _ in range(count)]
    with DelayedOperationPurgatory("bytes") as purgatory:
        before = resident_bytes()
        for some in keys:
            purgatory.try_complete_else_watch(Request(HOUR_MS, some), some)
        print(f"{(resident_bytes() - before) / count:.0f}")


def per_item_ns(work: Callable[[], object]) -> float:
    gc.collect()
    started_ns = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - started_ns) / WAITS


def one_wait() -> list[float]:
    """Nanoseconds of: add, cancel, watch, complete."""
    with SystemTimer("bench") as timer, DelayedOperationPurgatory("bench", timer) as purgatory:
        tasks = [TimerTask(HOUR_MS, int) for _ in range(WAITS)]
        operations = [Nothing(HOUR_MS) for _ in range(WAITS)]
        keys = [[key] for key in range(WAITS)]

        def add() -> None:
            for task in tasks:
                timer.add(task)

        def cancel() -> None:
            for task in tasks:
                task.cancel()

        def watch() -> None:
            for operation, key in zip(operations, keys, strict=True):
                purgatory.try_complete_else_watch(operation, key)

        def complete() -> None:
            for key in range(WAITS):
                purgatory.check_and_complete(key)

        figures = [per_item_ns(add), per_item_ns(cancel), per_item_ns(watch)]
        Nothing.try_complete = DelayedOperation.force_complete  # type: ignore[assignment]
        figures.append(per_item_ns(complete))
        Nothing.try_complete = bool
        assert (purgatory.watched, purgatory.num_delayed, len(timer)) == (0, 0, 0), "nothing remains"
        return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rates", type=float, nargs="+", default=[1000, 5000, 10_000, 20_000], help="requests/s")
    parser.add_argument("--seconds", type=float, default=5, help="how long each rate lasts")
    parser.add_argument("--timeout-ms", type=float, default=500, help="when a request expires")
    parser.add_argument("--p50-ms", type=float, default=20, help="median time to the answer")
    parser.add_argument("--p75-ms", type=float, default=60, help="its upper quartile")
    parser.add_argument("--repeats", type=int, default=31, help="of one wait")
    parser.add_argument("--check", action="store_true", help="exit with 1 if one wait costs too much")
    parser.add_argument("--print-bytes", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.print_bytes:
        print_bytes(arguments.print_bytes)
        return 0

    print(f"{'':9} {'':9} {'':8} {'waited':>9} {'CPU us per request':>19}")
    print(f"{'asked/s':>9} {'reached/s':>9} {'expired':>8} {'ms':>9} {'all':>8} {'generator':>10}")
    for rate in arguments.rates:
        print(run_load(rate, arguments), flush=True)

    own = [sys.executable, __file__, "--print-bytes", "200000"]
    done = subprocess.run(own, check=True, capture_output=True, text=True)
    print(f"\n{done.stdout.strip()} bytes per waiting request under {KEYS_PER_REQUEST} keys")

    add, cancel, watch, complete = (
        statistics.median(times) for times in zip(*(one_wait() for _ in range(arguments.repeats)), strict=True)
    )
    ratio = (watch + complete) / (add + cancel)
    print(f"\none wait, {WAITS:,} live, ns: watch {watch:.0f} + complete {complete:.0f} = {watch + complete:.0f}")
    print(f"a SystemTimer's add {add:.0f} + cancel {cancel:.0f} = {add + cancel:.0f}")
    print(f"ratio {ratio:.2f} (aim: at most {MOST_RATIO:.0f})")
    return int(arguments.check and ratio > MOST_RATIO)


if __name__ == "__main__":
    sys.exit(main())
