"""`tickwheel analyze`: Spark is imported, and started, when the command is called."""

import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console


@click.command()
@click.argument("ledgers", metavar="LEDGER...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path),
    help="Write figures (Parquet) and a page (index.html) to DIR: a new folder, an empty one, or one of an analysis.",
)
def analyze(ledgers: Sequence[Path], out: Path) -> None:
    """Tell what became of the messages in each LEDGER, a file that was given to --store: it may be in use.

    Lateness by minute and key, hot keys, retries, throughput, and what is due next. Needs Java 17.
    """
    from tickwheel.delivery.errors import DeliveryFailed, WrongUsage

    console = Console(stderr=True)

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    session: Any = None
    try:
        analytics, spark, errors = _spark()
        analytics.check(ledgers, out)
        say("Starting Spark.")
        session = spark.laptop_session("tickwheel analyze")
        # Spark's own handler asks its JVM something first, in the middle of whatever is being asked.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        page = analytics.analyze(session, ledgers, out, say=say)
    except WrongUsage as error:
        raise click.UsageError(str(error)) from error
    except KeyboardInterrupt:
        say(f"Stopped by Ctrl-C: {out} is as it was. Run the same command again.")
        sys.exit(130)
    except DeliveryFailed as error:
        say(f"Failed: {error}.")
        sys.exit(3)
    except errors.PySparkException as error:
        say(f"Failed: {reason(error)}.")
        sys.exit(3)
    finally:
        if session is not None:
            session.stop()
    say(f"Done: {page}")


def reason(error: Exception) -> str:
    """What a task said, in our own words if it has any; without where that was."""
    text = str(error)
    ours = re.search(r"^tickwheel\.delivery\.errors\.\w+: (.+)", text, flags=re.MULTILINE)
    return ours[1] if ours else f"Spark failed: {' '.join(text.split())[:500]}"


def _spark() -> tuple[Any, Any, Any]:
    from tickwheel.delivery.errors import WrongUsage

    try:
        import pyspark.errors

        import tickwheel.spark
        import tickwheel.spark.analytics
    except ImportError as error:
        raise WrongUsage(f"{error.name} can't be imported ({error}): run pip install 'tickwheel[spark]'") from error
    return tickwheel.spark.analytics, tickwheel.spark, pyspark.errors
