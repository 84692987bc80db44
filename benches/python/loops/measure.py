"""Measure one work on one side, in a process of its own, and print the figures as JSON; `../suite.py` starts it.

    python -m benches.python.loops.measure "pair, 10,000 pending" asyncio 1000000 1.0

Then the process ends at once: it does not wait until a million timers are freed.
"""

import asyncio
import json
import os
import sys
import traceback

from benches.python.records import TOO_LATE, TooLateError

from .sides import make
from .works import WORKS, Plan


def main(work_name: str, side: str, count: int, pace: float) -> None:
    work = next(work for work in WORKS if work.figures[0].name == work_name)
    with asyncio.Runner(loop_factory=lambda: make(side, work.base, work.options.get("slack_us", 0))) as runner:
        figures = runner.run(work.coroutine(Plan(count, pace)))
        assert set(figures) == {figure.name.removesuffix(work.suffix) for figure in work.figures}
        measured = {f"{name}{work.suffix}": value for name, value in figures.items()}
        print(json.dumps({"figures": measured, "note": ""}), flush=True)
        os._exit(0)


if __name__ == "__main__":
    try:
        work_name, side, count, pace = sys.argv[1:]
        main(work_name, side, int(count), float(pace))
    except TooLateError:
        os._exit(TOO_LATE)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
