"""What if the wheel were different (rule S7): a batch job that replays recordings over a grid of ticks and sizes.

    recordings x ticks x sizes --settings--> SETTINGS --replayed--> FIGURES --> Parquet --> page

`grid` has the schemas and the replay, `page` shows the figures. `tickwheel simulate EVENTS... --out DIR` calls
`simulate` in a session of its own.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from tickwheel.analysis.output import PAGE, check_out, replacing
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.pages import need_report
from tickwheel.spark.recordings import look_at
from tickwheel.spark.what_if.grid import FIGURES, SETTINGS, replayed, settings

__all__ = ["FIGURES", "SETTINGS", "WRITTEN", "check", "replayed", "settings", "simulate"]

COMMAND: Final = "tickwheel simulate"

WRITTEN: Final = {"figures.parquet": "a recording on a wheel, exact or to the tick"}
"""The files that a simulation writes beside its page, and what one row of each stands for."""

_MOST: Final = 1000
_TICK_MS: Final = range(1, 1 << 52)
_SIZE: Final = range(2, 65_537)


def check(recordings: Sequence[Path], ticks_ms: Sequence[int], wheel_sizes: Sequence[int], out: Path) -> None:
    """Check the arguments before anything is replayed. Errors: `WrongUsage`, also if libraries are missing."""
    need_report(COMMAND)
    for option, values, allowed in (("--ticks", ticks_ms, _TICK_MS), ("--sizes", wheel_sizes, _SIZE)):
        for value in values:
            if value not in allowed:
                raise WrongUsage(f"{option}: {value} is not in the range {allowed.start} to {allowed.stop - 1}")
    wheels = len(recordings) * len(ticks_ms) * len(wheel_sizes)
    if wheels > _MOST:
        raise WrongUsage(f"{wheels:,} replays are too many, at most {_MOST:,} are possible: name fewer ticks or sizes")
    look_at(recordings)
    check_out(out, WRITTEN, COMMAND)


def simulate(
    session: SparkSession,
    recordings: Sequence[Path],
    ticks_ms: Sequence[int],
    wheel_sizes: Sequence[int],
    out: Path,
    *,
    say: Callable[[str], object] | None = None,
) -> Path:
    """Write the figures and the page to the folder `out`, and return the page's path. `say` is called with a line for
    each step.

    Every wheel is replayed exact and to the tick, each replay by one task. An earlier simulation in `out` is replaced
    when everything is made. Errors: `WrongUsage`, `DeliveryFailed` if `out` can't be written, and Spark's own.
    """
    from tickwheel.pages.templates import save
    from tickwheel.spark.what_if.page import render

    say = say or (lambda _line: None)
    check(recordings, ticks_ms, wheel_sizes, out)
    found = look_at(recordings)
    paths = [os.path.abspath(path) for path in recordings]  # noqa: PTH100, a link keeps its own name
    with replacing(out, WRITTEN, COMMAND) as new:
        wheels = settings(session, paths, sorted(set(ticks_ms)), sorted(set(wheel_sizes)))
        say(f"Replaying {wheels.count():,} times: every recording on every wheel, exact and to the tick.")
        figures = (
            replayed(wheels).repartition(1).sortWithinPartitions("recording", "tick_ms", "wheel_size", "precision")
        )
        figures.write.parquet(f"file://{new.resolve()}/figures.parquet")
        say(f"Making {PAGE}.")
        save(new / PAGE, render(found, new / "figures.parquet", WRITTEN))
    return out / PAGE
