"""`tickwheel analyze`: in this process, or on Spark, which is imported and started when the command needs it."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from tickwheel.commands.options import PATH, together
from tickwheel.commands.printing import say
from tickwheel.commands.spark_job import job_reported, run_on_spark

_options = together(
    click.argument("ledgers", metavar="LEDGER...", nargs=-1, required=True, type=PATH),
    click.option("--events", "recordings", metavar="FILE", multiple=True, type=PATH,
                 help="Also report what a timer did: FILE is from deliver --record or tickwheel.recording. Repeat it "
                 "for more. Needs Spark."),
    click.option("--out", metavar="DIR", required=True, type=PATH,
                 help="Write figures (Parquet) and a page (index.html) to DIR: a new folder, an empty one, or one of "
                 "an analysis."),
    click.option("--engine", type=click.Choice(["local", "spark"]),
                 help="Where the figures are made, which are the same: in this process, or on Spark (needs Java 17). "
                 "By default here for one LEDGER without --events."),
)  # fmt: skip


@click.command()
@_options
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
    from tickwheel.delivery.read.parquet import need_pyarrow

    with job_reported(out):
        need_pyarrow()
        from tickwheel.analysis.local import analyze

        page = analyze(ledgers, out, say=partial(say, err=True))
    say(f"Done: {page}", err=True)
