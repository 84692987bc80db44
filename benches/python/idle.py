"""Measure the cost of a timer while nothing is due: with nothing pending, and with a million tasks due in an hour.

Over `--seconds` it reads the CPU time of the whole process, `stats()["wake_ups"]`, and how often the timer's threads
gave up the processor themselves (`voluntary_ctxt_switches` in `/proc/self/task/*/status`, without the main thread,
which sleeps). A thread that sleeps all the time adds nothing to the last figure.

With `--check` the exit code is 1 above 1 ms of CPU per second, or above one wake-up in ten seconds by either count.

    python benches/python/idle.py --check
"""

import argparse
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tickwheel import SystemTimer

HOUR_MS = 3_600_000
SETTLE_S = 0.5
"""The time from the last add to the start of the measurement, so that the threads sleep by then."""

MAX_CPU_MS_PER_S = 1.0
MAX_WAKE_UPS_PER_S = 0.1


@dataclass(frozen=True)
class Cost:
    """The cost of `seconds` in which nothing is due."""

    seconds: float
    cpu_ms: float
    wake_ups: int
    switches: int

    @property
    def acceptable(self) -> bool:
        """Whether it is within the bounds of `--check`."""
        allowed = max(1.0, MAX_WAKE_UPS_PER_S * self.seconds)
        return self.cpu_ms <= MAX_CPU_MS_PER_S * self.seconds and self.wake_ups <= allowed and self.switches <= allowed


def nothing() -> None:
    """Is the callback. It is never due here."""


def other_threads_switches() -> int:
    """The sum of the voluntary context switches of all threads of this process, without the calling thread."""
    switches = 0
    for thread in Path("/proc/self/task").iterdir():
        if int(thread.name) != threading.get_native_id():
            for line in (thread / "status").read_text(encoding="utf-8").splitlines():
                if line.startswith("voluntary_ctxt_switches:"):
                    switches += int(line.split()[1])
    return switches


def measure(pending: int, seconds: float) -> Cost:
    with SystemTimer("idle") as timer:
        for _ in range(pending):
            timer.after(HOUR_MS, nothing)
        time.sleep(SETTLE_S)
        wake_ups = timer.stats()["wake_ups"]
        switches = other_threads_switches()
        started_s, started_cpu_ns = time.monotonic(), time.process_time_ns()
        time.sleep(seconds)
        cpu_ms = (time.process_time_ns() - started_cpu_ns) / 1e6
        return Cost(
            seconds=time.monotonic() - started_s,
            cpu_ms=cpu_ms,
            wake_ups=timer.stats()["wake_ups"] - wake_ups,
            switches=other_threads_switches() - switches,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the cost of a timer that has nothing to do.")
    parser.add_argument("--count", type=int, default=1_000_000, help="tasks pending in the second measurement")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each measurement is")
    parser.add_argument("--check", action="store_true", help="exit with 1 if it costs more than it may")
    options = parser.parse_args()

    print(f"{'pending':>10} {'CPU ms/s':>10} {'wake-ups':>10} {'switches':>10}   in {options.seconds:g} s")
    acceptable = True
    for pending in (0, options.count):
        cost = measure(pending, options.seconds)
        print(f"{pending:>10,} {cost.cpu_ms / cost.seconds:>10.3f} {cost.wake_ups:>10} {cost.switches:>10}")
        acceptable = acceptable and cost.acceptable
    if options.check and not acceptable:
        print("more than 1 ms of CPU per second, or than one wake-up in ten seconds", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
