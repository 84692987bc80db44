"""Measure one work on one side, in a process of its own, and print the figures as JSON; `__main__` starts it.

    python -m benches.python.timers.measure add asyncio 1000000 1.0

Then the process ends at once: it does not wait until a million timers are freed, or until a thread has slept.
"""

import json
import os
import sys
import traceback
from collections.abc import Iterator

from benches.python.records import TOO_LATE, TooLateError

from .side import Figures, Side, Steps
from .sides import make
from .works import WORKS
from .works.plan import Plan


def measure(work_name: str, side_name: str, count: int, pace: float) -> dict[str, object]:
    """The figures, and the note for the record."""
    work = next(work for work in WORKS if work.figures[0].name == work_name)
    side = make(side_name)
    figures = run(work.start(side, Plan(count, pace)), side)
    assert set(figures) == {figure.name for figure in work.figures}
    return {"figures": figures, "note": side.after_cancel if work.shows_cancel else ""}


def run(steps: Steps, side: Side) -> Figures:
    """Run a work to its end."""
    figures: Figures = {}

    def to_its_end() -> Iterator[float]:
        figures.update((yield from steps))

    side.drive(to_its_end())
    return figures


if __name__ == "__main__":
    try:
        work_name, side_name, count, pace = sys.argv[1:]
        print(json.dumps(measure(work_name, side_name, int(count), float(pace))), flush=True)
    except TooLateError:
        os._exit(TOO_LATE)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
