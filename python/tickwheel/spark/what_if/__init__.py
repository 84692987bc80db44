"""What if the wheel were another (rule S7): a batch job that replays recordings over a grid of ticks and sizes.

    recordings x ticks x sizes --settings--> SETTINGS --replayed--> FIGURES --> Parquet --> page

`grid` has the schemas and the replay, `page` shows it. `tickwheel simulate EVENTS... --out DIR` is `simulate` on a
session of its own.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from tickwheel.delivery.errors import WrongUsage
from tickwheel.pages import need_report
from tickwheel.spark.output import PAGE, check_out, replacing
from tickwheel.spark.recordings import look_at
from tickwheel.spark.what_if.grid import FIGURES, SETTINGS, replayed, settings

__all__ = ["FIGURES", "SETTINGS", "WRITTEN", "check", "replayed", "settings", "simulate"]

COMMAND: Final = "tickwheel simulate"

WRITTEN: Final = {"figures.parquet": "a recording on a wheel, exact or to the tick"}
"""What a simulation writes beside its page, and what has a row there."""

_MOST: Final = 1000
_TICK_MS: Final = range(1, 1 << 52)
_SIZE: Final = range(2, 65_537)


def check(recordings: Sequence[Path], ticks_ms: Sequence[int], wheel_sizes: Sequence[int], out: Path) -> None:
    """What can be told before anything is replayed. Errors: `WrongUsage`, also where libraries are missing."""
    need_report(COMMAND)
    for option, values, allowed in (("--ticks", ticks_ms, _TICK_MS), ("--sizes", wheel_sizes, _SIZE)):
        for value in values:
            if value not in allowed:
                raise WrongUsage(f"{option}: {value} is not from {allowed.start} to {allowed.stop - 1}")
    wheels = len(recordings) * len(ticks_ms) * len(wheel_sizes)
    if wheels > _MOST:
        raise WrongUsage(f"{wheels:,} replays are asked for, at most {_MOST:,} are possible: name fewer ticks or sizes")
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
    """Write the figures and the page to the folder `out`, and return the page's path. `say` is told each step.

    Every wheel is replayed exact and to the tick, each replay by one task. What was in `out` before, from a simulation,
    is replaced when all is made. Errors: `WrongUsage`, `DeliveryFailed` if it can't be written, those of Spark.
    """
    from tickwheel.pages.templates import save
    from tickwheel.spark.what_if.page import render

    say = say or (lambda _line: None)
    check(recordings, ticks_ms, wheel_sizes, out)
    found = look_at(recordings)
    paths = [os.path.abspath(path) for path in recordings]  # noqa: PTH100, as a link stays the name that it is
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
