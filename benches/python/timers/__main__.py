"""Measure tickwheel's timer and the other ones: `python -m benches.python.timers`, from the repository's folder.

Writes `build/bench/python.json` for the report, and prints a table. A run of only some works or sides writes nothing
without `--output`, so that it does not replace a complete run. The packages of the other sides are in
requirements-bench.txt. Exit code 1 if any side failed at any work; all other figures are written.
"""

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from .records import Results
from .sides import PEERS
from .works import WORKS, Work

ROOT: Final = Path(__file__).parents[3]
OUTPUT: Final = ROOT / "build/bench/python.json"
TIME_LIMIT_S: Final = 300
"""For one figure. The slowest takes some seconds."""

FALLBACK_COLUMNS: Final = 200


def main() -> int:
    options = parse()
    names = options.only_side or list(PEERS)
    plan = [(work, [name for name in names if name in work.sides]) for work in options.works]
    results = Results()
    for work, sides in plan:
        for figure in work.figures:
            for side in sides:
                results.expect(figure, side, work.count_for(side, options.count))

    failed = []
    for repeat in range(options.repeats):
        for work, sides in plan:
            # Each repeat begins with another side.
            start = repeat * len(sides) // options.repeats
            for side in sides[start:] + sides[:start]:
                print(f"{repeat + 1}/{options.repeats} {work.figures[0].name}: {side}", file=sys.stderr, flush=True)
                measured = measure(work, side, work.count_for(side, options.count), options.pace)
                if measured is None:
                    failed.append(f"{work.figures[0].name}: {side}, repeat {repeat + 1}")
                    continue
                for name, value in measured["figures"].items():
                    results.put(name, side, value, measured["note"])

    Console(width=None if sys.stdout.isatty() else FALLBACK_COLUMNS).print(results.table())
    if options.output:
        command = shlex.join(["python", "-m", "benches.python.timers", *sys.argv[1:]])
        results.write(options.output, command, options.repeats)
    for failure in failed:
        print(f"FAILED {failure}", file=sys.stderr)
    return 1 if failed else 0


def parse() -> argparse.Namespace:
    """The options; `works` and `output` follow from the others."""
    figures = [figure.name for work in WORKS for figure in work.figures]
    parser = argparse.ArgumentParser(description="Measure tickwheel's timer beside the other ones.")
    parser.add_argument("--repeats", type=int, default=3, help="how often each work runs on each side")
    parser.add_argument("--count", type=int, default=1_000_000, help="how many timers, if the side is fast enough")
    parser.add_argument(
        "--pace", type=float, default=1.0, help="length of the works in real time; 1 is the full length"
    )
    parser.add_argument("--only-work", action="append", choices=figures, help="may be given several times")
    parser.add_argument("--only-side", action="append", choices=list(PEERS), help="may be given several times")
    parser.add_argument("--output", type=Path, help=f"by default {OUTPUT.relative_to(ROOT)}, if everything is measured")
    options = parser.parse_args()
    wanted = options.only_work or figures
    options.works = [work for work in WORKS if any(figure.name in wanted for figure in work.figures)]
    if options.output is None and not (options.only_work or options.only_side):
        options.output = OUTPUT
    return options


def measure(work: Work, side: str, count: int, pace: float) -> dict[str, Any] | None:
    """The output of the process for it, or None if it failed. Its error messages have gone to stderr."""
    arguments = [work.figures[0].name, side, str(count), str(pace)]
    command = [sys.executable, "-m", f"{__package__}.measure", *arguments]
    try:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=TIME_LIMIT_S, check=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"FAILED {work.figures[0].name}: {side}: {error}", file=sys.stderr, flush=True)
        return None
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


if __name__ == "__main__":
    sys.exit(main())
