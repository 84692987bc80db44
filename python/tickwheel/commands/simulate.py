"""`tickwheel simulate`: Spark is imported, and started, when the command is called."""

from collections.abc import Sequence
from pathlib import Path

import click

from tickwheel.commands.options import PATH, together
from tickwheel.commands.spark_job import run_on_spark


def _whole_numbers(_context: click.Context, option: click.Parameter, text: str) -> list[int]:
    numbers = [part.strip() for part in text.split(",")]
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        raise click.BadParameter(f"{text!r} is not a list of whole numbers, as in {option.default}")
    return [int(number) for number in numbers]


_options = together(
    click.argument("recordings", metavar="EVENTS...", nargs=-1, required=True, type=PATH),
    click.option("--ticks", metavar="MS,...", default="1,5,10", show_default=True, callback=_whole_numbers,
                 help="The finest ticks to try, in milliseconds."),
    click.option("--sizes", metavar="N,...", default="20,64,256", show_default=True, callback=_whole_numbers,
                 help="The wheel sizes to try: buckets per level."),
    click.option("--out", metavar="DIR", required=True, type=PATH,
                 help="Write figures (Parquet) and a page (index.html) to DIR: a new folder, an empty one, or one of "
                 "a simulation."),
)  # fmt: skip


@click.command()
@_options
def simulate(recordings: Sequence[Path], ticks: Sequence[int], sizes: Sequence[int], out: Path) -> None:
    """Report which wheel suits the traffic of each file EVENTS, written by tickwheel.recording.

    Its adds, moves and cancels are replayed in virtual time with each tick and size, exact and to the tick: cascades,
    wake-ups, early time, and peak memory. Needs Java 17.
    """
    run_on_spark(
        "tickwheel simulate",
        "tickwheel.spark.what_if",
        out,
        lambda what_if: what_if.check(recordings, ticks, sizes, out),
        lambda what_if, session, say: what_if.simulate(session, recordings, ticks, sizes, out, say=say),
    )
