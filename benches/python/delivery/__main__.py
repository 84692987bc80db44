"""Lateness of deliveries at steady rates, from a durable store to a file, a function or webhooks; beside it, polling.

    python -m benches.python.delivery [--only "50,000 file"]... [--seconds 20] [--check]

The result is read from what was delivered: the lateness of each message, and whether each is there once (D3, D5, D8).
Each case runs in a process of its own with the generator in another; the machine is otherwise idle.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from .cases import CASES, Case, Row

_LEAST_OVERDUE = 50_000  # a second


@click.command()
@click.option("--only", "names", multiple=True, type=click.Choice([*CASES]), help="This case; may be repeated.")
@click.option("--seconds", default=20.0, show_default=True)
@click.option("--check", is_flag=True, help="Fail if a target is missed.")
def main(names: tuple[str, ...], seconds: float, *, check: bool) -> None:
    """Measure each case, and print a table."""
    table = Table(title="Accepted durably and delivered, milliseconds late")
    for name in ("asked", *Row.__dataclass_fields__):
        table.add_column(name.replace("_", " "), justify="right")
    missed = []
    Path("build").mkdir(exist_ok=True)
    for name in names or CASES:
        with tempfile.TemporaryDirectory(dir="build") as folder:
            command = [sys.executable, "-m", "benches.python.delivery.cases", name, str(seconds), folder]
            row = Row(**json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
        values = (getattr(row, part) for part in Row.__dataclass_fields__)
        table.add_row(name, *(f"{it:,.2f}".removesuffix(".00") for it in values))
        missed += misses(name, CASES[name], row)
    console = Console(width=150)
    console.print(table)
    for miss in missed:
        console.print(f"missed: {miss}")
    if check and missed:
        sys.exit(1)


def misses(name: str, case: Case, row: Row) -> list[str]:
    """The missed targets."""
    found = [f"{name}: {row.early} early"] if row.early else []
    for what, value, aim in zip(("p99", "p99.9"), (row.p99, row.p999), case.aims or (), strict=False):
        found += [f"{name}: {what} {value:.2f} ms, aim {aim:g}"] if value > aim else []
    least = case.rate * 0.98 if case.rate else _LEAST_OVERDUE if name == "1M overdue" else 0
    return found + ([f"{name}: {row.per_second:,.0f}/s"] if row.per_second < least else [])


if __name__ == "__main__":
    main()
