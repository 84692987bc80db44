"""`tickwheel analyze`: in this process, or on Spark, which is imported and started when the command needs it."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from tickwheel._printable import printable
from tickwheel._stopping import stopped_by
from tickwheel.commands.spark_job import run_on_spark


@click.command()
@click.argument("ledgers", metavar="LEDGER...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--events",
    "recordings",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Also report what a timer did: FILE is from deliver --record or tickwheel.recording. Repeat it for more. "
    "Needs Spark.",
)
@click.option(
    "--out",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path),
    help="Write figures (Parquet) and a page (index.html) to DIR: a new folder, an empty one, or one of an analysis.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "spark"]),
    help="Where the figures are made, which are the same: in this process, or on Spark (needs Java 17). By default "
    "here for one LEDGER without --events.",
)
def analyze(ledgers: Sequence[Path], recordings: Sequence[Path], out: Path, engine: str | None) -> None:
    """Report what happened to the messages in each LEDGER, a file of --store, which may be in use.

    Lateness by minute and key, hot keys, retries, throughput, and what is due next. One page about one store, without
    figures as files: tickwheel report.
    """
    if engine == "local" and recordings:
        raise click.UsageError("--events needs Spark: leave --engine local out")
    if engine == "local" or (engine is None and len(ledgers) == 1 and not recordings):
        _analyze_here(ledgers, out)
        return
    run_on_spark(
        "tickwheel analyze",
        "tickwheel.spark.analytics",
        out,
        lambda analytics: analytics.check(ledgers, out, recordings),
        lambda analytics, session, say: analytics.analyze(session, ledgers, out, recordings=recordings, say=say),
    )


def _analyze_here(ledgers: Sequence[Path], out: Path) -> None:
    from tickwheel.delivery.base.errors import DeliveryFailed, WrongUsage
    from tickwheel.delivery.base.standard_error import StandardError
    from tickwheel.delivery.read.parquet import need_pyarrow

    console = StandardError().console()

    def say(line: str) -> None:
        console.print(printable(line), markup=False, highlight=False, soft_wrap=True)

    try:
        need_pyarrow()
        from tickwheel.analysis.local import analyze

        page = analyze(ledgers, out, say=say)
    except WrongUsage as error:
        raise click.UsageError(str(error)) from error
    except KeyboardInterrupt as stop:
        say(f"Stopped by {stopped_by(stop)}: {out} has not changed. Run the same command again.")
        sys.exit(130)
    except DeliveryFailed as error:
        say(f"Failed: {error}.")
        sys.exit(3)
    say(f"Done: {page}")
