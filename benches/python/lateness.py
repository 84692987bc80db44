"""Measure how late callbacks run on an idle machine, beside a bare Python thread that sleeps to the same instants.

Lateness is the time of the call minus the due instant, both on the system's monotonic clock. One run is 2,000
instants, random over 2 s. First the bare thread sleeps to one after another, then a `SystemTimer` gets the same
instants, moved to its turn; in the next run the timer is first. The table shows the median of the runs for each
percentile.

Exit code 1 if any callback ran early; with `--check` also if the timer's p50 is above 1.5 times the thread's, or its
p90 above 1.5 times the thread's plus 100 µs.

    python benches/python/lateness.py --check
"""

import argparse
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable

from tickwheel import SystemTimer

LEAD_NS = 200_000_000
"""The time before the first instant, to start a thread or to add all timers."""

CHECK_RATIO = 1.5
CHECK_SLACK_US = 100.0
PERCENTILES = ("p50", "p90", "p99", "max")


def record(lateness_ns: list[int], due_ns: int) -> None:
    """Record how late this call is. Below zero it is early."""
    lateness_ns.append(time.monotonic_ns() - due_ns)


def run_bare(dues_ns: list[int]) -> list[int]:
    lateness_ns: list[int] = []

    def sleep_to_each() -> None:
        for due_ns in dues_ns:
            while (left_ns := due_ns - time.monotonic_ns()) > 0:
                time.sleep(left_ns / 1e9)
            record(lateness_ns, due_ns)

    thread = threading.Thread(target=sleep_to_each)
    thread.start()
    thread.join()
    return lateness_ns


def run_tickwheel(dues_ns: list[int]) -> list[int]:
    lateness_ns: list[int] = []
    ended = threading.Event()
    with SystemTimer("lateness") as timer:
        for due_ns in dues_ns:
            timer.at(due_ns / 1e6, record, lateness_ns, due_ns)
        timer.at(dues_ns[-1] / 1e6 + 10, ended.set)
        ended.wait()
    return lateness_ns


def percentiles_us(lateness_ns: list[int]) -> dict[str, float]:
    cuts = statistics.quantiles(lateness_ns, n=100, method="inclusive")
    values_ns = (cuts[49], cuts[89], cuts[98], max(lateness_ns))
    return {name: value_ns / 1000 for name, value_ns in zip(PERCENTILES, values_ns, strict=True)}


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the lateness of tickwheel and of a bare sleeping thread.")
    parser.add_argument("--count", type=int, default=2000, help="instants in a run")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long a run is")
    parser.add_argument("--runs", type=int, default=5, help="runs of each side, in turn")
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 if the timer is clearly later than the thread"
    )
    options = parser.parse_args()

    sides: list[tuple[str, Callable[[list[int]], list[int]]]] = [("thread", run_bare), ("tickwheel", run_tickwheel)]
    runs: dict[str, list[dict[str, float]]] = {name: [] for name, _ in sides}
    early = dict.fromkeys(runs, 0)
    for number in range(options.runs):
        source = random.Random(number)
        # Whole microseconds, the resolution of the timer.
        offsets_ns = sorted(source.randrange(int(options.seconds * 1e6)) * 1000 for _ in range(options.count))
        for name, run in sides:
            start_ns = time.monotonic_ns() // 1000 * 1000 + LEAD_NS
            lateness_ns = run([start_ns + offset_ns for offset_ns in offsets_ns])
            assert len(lateness_ns) == options.count, f"{name} made {len(lateness_ns)} of {options.count} calls"
            runs[name].append(percentiles_us(lateness_ns))
            early[name] += sum(late_ns < 0 for late_ns in lateness_ns)
        sides.reverse()

    medians_us = {
        name: {p: statistics.median(run[p] for run in figures) for p in PERCENTILES} for name, figures in runs.items()
    }
    print(f"{options.count:,} instants over {options.seconds:g} s, medians of {options.runs} runs, lateness in µs")
    print(f"{'':<6} {'tickwheel':>10} {'thread':>10} {'ratio':>7}")
    for p in PERCENTILES:
        ours_us, bare_us = medians_us["tickwheel"][p], medians_us["thread"][p]
        print(f"{p:<6} {ours_us:>10.1f} {bare_us:>10.1f} {ours_us / bare_us:>7.2f}")
    print(f"{'early':<6} {early['tickwheel']:>10} {early['thread']:>10}")

    if early["tickwheel"]:
        print("callbacks ran before they were due", file=sys.stderr)
        return 1
    bounds_us = {
        "p50": CHECK_RATIO * medians_us["thread"]["p50"],
        "p90": CHECK_RATIO * medians_us["thread"]["p90"] + CHECK_SLACK_US,
    }
    too_late = [p for p, bound_us in bounds_us.items() if medians_us["tickwheel"][p] > bound_us]
    if options.check and too_late:
        print("; ".join(f"{p} is above {bounds_us[p]:.1f} µs" for p in too_late), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
