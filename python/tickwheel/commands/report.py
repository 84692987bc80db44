"""`tickwheel report`."""

import sys
from pathlib import Path

import click

from tickwheel.commands.printing import say


@click.command()
@click.argument("store", metavar="STORE", type=click.Path(path_type=Path))
@click.option(
    "--out",
    "page",
    metavar="PAGE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the page to PAGE; by default to STORE.html.",
)
def report(store: Path, page: Path | None) -> None:
    """Write a page (HTML) about STORE, which may be in use: counts, lateness, what is due next, dead letters.

    It needs no Java. For several stores, and figures as Parquet, see tickwheel analyze.
    """
    from tickwheel.delivery.base.errors import DeliveryFailed, WrongUsage
    from tickwheel.delivery.command.outputs import check_outputs
    from tickwheel.delivery.report import write_report

    page = page or store.with_name(f"{store.name}.html")
    try:
        check_outputs({"--store": store, "--out": page}, ())
        write_report(store, page, title=f"The store {store.name}")
    except WrongUsage as error:
        raise click.UsageError(str(error)) from error
    except DeliveryFailed as error:
        say(f"Failed: {error}.", err=True)
        sys.exit(3)
    say(f"Done: {page}", err=True)
