"""Runs a suite of benchmarks: each work on each side in a process of its own, in turns, and writes the figures."""

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from benches.python.conditions import Conditions
from benches.python.records import TOO_LATE, Figure, Results, versions
from rich.console import Console

ROOT: Final = Path(__file__).parents[2]
TIME_LIMIT_S: Final = 300
"""For one figure. The slowest takes some seconds."""

FALLBACK_COLUMNS: Final = 200
ATTEMPTS: Final = 5
"""Of one figure, if the machine is busy at the wrong moment."""


class Work(Protocol):
    """What one process measures: `python -m PACKAGE.measure FIGURE SIDE COUNT PACE` prints it as JSON."""

    @property
    def figures(self) -> tuple[Figure, ...]:
        """What it measures; its process is asked for by the name of the first."""

    @property
    def sides(self) -> tuple[str, ...]:
        """Those that can do it."""

    def count_for(self, side: str, count: int, /) -> int:
        """How many timers it takes on this side: `count`, or fewer."""


def main(
    package: str,
    suite: str,
    works: Sequence[Work],
    sides: Sequence[str],
    packages: Iterable[str],
    other_versions: Mapping[str, str] | None = None,
) -> int:
    """Measure, print a table, and write `build/bench/SUITE.json`. Exit code 1 if any side failed at any work.

    `other_versions` are of what is no Python package.
    """
    options = parse(package, suite, works, sides)
    names = options.only_side or sides
    plan = [(work, [name for name in names if name in work.sides]) for work in options.works]
    results = Results()
    for work, among in plan:
        for figure in work.figures:
            for side in among:
                results.expect(figure, side, work.count_for(side, options.count))

    failed = []
    conditions = Conditions()
    for repeat in range(options.repeats):
        for work, among in plan:
            # Each repeat begins with another side.
            start = repeat * len(among) // options.repeats
            for side in among[start:] + among[:start]:
                print(f"{repeat + 1}/{options.repeats} {work.figures[0].name}: {side}", file=sys.stderr, flush=True)
                conditions.calibrate()
                measured = measure(package, work, side, work.count_for(side, options.count), options.pace)
                if measured is None:
                    failed.append(f"{work.figures[0].name}: {side}, repeat {repeat + 1}")
                    continue
                for name, value in measured["figures"].items():
                    results.put(name, side, value, measured["note"])
                    print(f"    {results.spread(name, side)}", file=sys.stderr, flush=True)

    Console(width=None if sys.stdout.isatty() else FALLBACK_COLUMNS).print(results.table())
    noted = conditions.noted()
    print(", ".join(f"{name}: {value}" for name, value in noted.items() if name != "calibration_ms"))
    if options.output:
        command = shlex.join(["python", "-m", package, *sys.argv[1:]])
        found = versions(packages) | dict(other_versions or {})
        results.write(options.output, suite, command, found, noted, options.repeats)
    for failure in failed:
        print(f"FAILED {failure}", file=sys.stderr)
    return 1 if failed else 0


def parse(package: str, suite: str, works: Sequence[Work], sides: Sequence[str]) -> argparse.Namespace:
    """The options; `works` and `output` follow from the others."""
    output = ROOT / f"build/bench/{suite}.json"
    figures = [figure.name for work in works for figure in work.figures]
    parser = argparse.ArgumentParser(prog=f"python -m {package}", description="Measure tickwheel beside others.")
    parser.add_argument("--repeats", type=at_least_one, default=3, help="how often each work runs on each side")
    parser.add_argument(
        "--count", type=at_least_one, default=1_000_000, help="how many timers, if the side is fast enough"
    )
    parser.add_argument(
        "--pace", type=above_zero, default=1.0, help="length of the works in real time; 1 is the full length"
    )
    for option, names in (("--only-work", figures), ("--only-side", list(sides))):
        listed = "; ".join(names)
        parser.add_argument(
            option, action="append", choices=names, metavar="NAME", help=f"may be given several times: {listed}"
        )
    parser.add_argument("--output", type=Path, help=f"by default {output.relative_to(ROOT)}, if everything is measured")
    options = parser.parse_args()
    wanted = options.only_work or figures
    options.works = [work for work in works if any(figure.name in wanted for figure in work.figures)]
    if options.output is None and not (options.only_work or options.only_side):
        options.output = output
    return options


def at_least_one(text: str) -> int:
    """A number of repeats or timers."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return number


def above_zero(text: str) -> float:
    """A factor."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return number


def measure(package: str, work: Work, side: str, count: int, pace: float) -> dict[str, Any] | None:
    """The output of the process for it, or None if it failed. Its error messages have gone to stderr."""
    arguments = [work.figures[0].name, side, str(count), str(pace)]
    command = [sys.executable, "-m", f"{package}.measure", *arguments]
    try:
        for _ in range(ATTEMPTS):
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=TIME_LIMIT_S)
            if done.returncode != TOO_LATE:
                break
            print("    the timers were due before all were added", file=sys.stderr, flush=True)
        done.check_returncode()
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"FAILED {work.figures[0].name}: {side}: {error}", file=sys.stderr, flush=True)
        return None
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured
