"""`tickwheel report`."""

from pathlib import Path

import click

from tickwheel.commands.options import FILE, PATH
from tickwheel.commands.printing import errors_reported, say


@click.command()
@click.argument("store", metavar="STORE", type=PATH)
@click.option("--out", "page", metavar="PAGE", type=FILE, help="Write the page to PAGE; by default to STORE.html.")
def report(store: Path, page: Path | None) -> None:
    """Write a page (HTML) about STORE, which may be in use: counts, lateness, what is due next, dead letters.

    It needs no Java. For several stores, and figures as Parquet, see tickwheel analyze.
    """
    from tickwheel.delivery.command.outputs import check_outputs
    from tickwheel.delivery.report import write_report

    page = page or store.with_name(f"{store.name}.html")
    with errors_reported():
        check_outputs({"--store": store, "--out": page}, ())
        write_report(store, page, title=f"The store {store.name}")
    say(f"Done: {page}", err=True)
