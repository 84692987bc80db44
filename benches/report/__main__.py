"""Write the report: `python -m benches.report`, from the repository's folder, on the machine that measured.

A suite without a result file keeps the part that it has. Exit code 1 if nothing could be written; a missed target is no
error, it is marked.
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from . import charts, page, results, tables
from .errors import ReportError
from .results import Suite

ROOT = Path(__file__).parents[2]
FALLBACK_COLUMNS = 160
"""How wide the tables are when nobody says how wide the terminal is."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Put the results of make bench into docs/benchmarks.md.")
    parser.add_argument("--results", type=Path, default=ROOT / "build/bench", help="folder of the suites' *.json")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of benchmarks.md and its charts")
    options = parser.parse_args(arguments)
    try:
        suites = results.read(options.results)
        write(options.docs, suites)
    except ReportError as error:
        print(error, file=sys.stderr)
        return 1
    console = Console(width=None if sys.stdout.isatty() else FALLBACK_COLUMNS)
    for name in results.SUITES:
        if name in suites:
            text = f"# {name}\n\n{tables.medians(suites[name])}\n\n{tables.targets(suites[name])}"
            console.print(Markdown(text))
        else:
            print(f"{name}: no result file in {options.results}, its part stays as it is", file=sys.stderr)
    return 0


def write(docs: Path, suites: dict[str, Suite]) -> None:
    """All parts and charts, or none: what could go wrong is done before the first file is written."""
    path = docs / "benchmarks.md"
    if not path.exists():
        raise ReportError(f"{path} is missing: get it back from git, or say with --docs where it is")
    text = path.read_text(encoding="utf-8")
    pictures: dict[str, bytes] = {}
    for suite in suites.values():
        rows = charts.compare(suite)
        picture = ""
        if rows:
            name = f"benchmarks-{suite.name}.svg"
            pictures[name] = charts.svg(rows)
            picture = f"![Times what tickwheel takes, by work and peer: the table below has the figures]({name})"
        text = page.with_part(text, suite.name, part(suite, picture))
    for name, content in pictures.items():
        (docs / name).write_bytes(content)
    path.write_text(text, encoding="utf-8")


def part(suite: Suite, picture: str) -> str:
    """What goes between the suite's markers."""
    return "\n\n".join(
        text
        for text in (
            tables.run(suite),
            picture,
            "Medians; **bold** is the best of a row, ▼ names who beats tickwheel and by how much, — cannot do it.",
            tables.medians(suite),
            tables.notes(suite),
            "### Targets",
            tables.targets(suite),
            "<details><summary>Counts, and how far the repeats lie apart</summary>",
            tables.spread(suite),
            "</details>",
        )
        if text
    )


if __name__ == "__main__":
    sys.exit(main())
