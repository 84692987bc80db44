"""`tickwheel analyze`: Spark is imported, and started, when the command is called."""

from collections.abc import Sequence
from pathlib import Path

import click

from tickwheel.commands.spark_job import run_on_spark


@click.command()
@click.argument("ledgers", metavar="LEDGER...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--events",
    "recordings",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Also report what a timer did: FILE is from deliver --record or tickwheel.recording. Repeat it for more.",
)
@click.option(
    "--out",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path),
    help="Write figures (Parquet) and a page (index.html) to DIR: a new folder, an empty one, or one of an analysis.",
)
def analyze(ledgers: Sequence[Path], recordings: Sequence[Path], out: Path) -> None:
    """Report what happened to the messages in each LEDGER, a file of --store, which may be in use.

    Lateness by minute and key, hot keys, retries, throughput, and what is due next. Needs Java 17; a page about one
    store, without Java: tickwheel report.
    """
    run_on_spark(
        "tickwheel analyze",
        "tickwheel.spark.analytics",
        out,
        lambda analytics: analytics.check(ledgers, out, recordings),
        lambda analytics, session, say: analytics.analyze(session, ledgers, out, recordings=recordings, say=say),
    )
