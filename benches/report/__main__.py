"""Write the report: `python -m benches.report`, from the repository's folder, on the machine that measured.

The part of a suite without a result file stays as it is. Exit code 1 if nothing could be written. A target that is
missed or not judged is no error: the page marks it.
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
QUEUES = "queues"
FALLBACK_COLUMNS = 160
"""The width of the tables if the output is not a terminal."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benches.report",
        description="Put the results of make bench and make bench-queues into docs/internals.",
    )
    parser.add_argument("--results", type=Path, default=ROOT / "build/bench", help="folder of the suites' *.json")
    parser.add_argument(
        "--docs", type=Path, default=ROOT / "docs/internals", help="folder of benchmarks.md, queues.md and their charts"
    )
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
    """Write all parts and charts, or none: everything that can fail is done before the first file is written."""
    texts: dict[Path, str] = {}
    pictures: dict[Path, bytes] = {}
    for suite in suites.values():
        path = docs / ("queues.md" if suite.name == QUEUES else "benchmarks.md")
        if path not in texts:
            if not path.exists():
                raise ReportError(f"{path} is missing: restore it from git, or give its folder with --docs")
            texts[path] = path.read_text(encoding="utf-8")
        name, alt, picture = _chart(suite)
        if picture:
            pictures[docs / name] = picture
        image = f"![{alt}]({name})" if picture else ""
        made = of_queues(suite, image) if suite.name == QUEUES else part(suite, image)
        texts[path] = page.with_part(texts[path], suite.name, made)
    for file, content in pictures.items():
        file.write_bytes(content)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")


def _chart(suite: Suite) -> tuple[str, str, bytes]:
    """The name of the file, the text for those who don't see it, and the picture: empty if there is nothing to draw."""
    if suite.name == QUEUES:
        lines = charts.lateness(suite)
        alt = "How late each queue is at p99, by the rate: the table has the figures"
        return "queues.svg", alt, charts.lateness_svg(lines) if lines else b""
    rows = charts.compare(suite)
    alt = "How many times better tickwheel is, by work and peer: the table has the figures"
    return f"benchmarks-{suite.name}.svg", alt, charts.svg(rows) if rows else b""


def of_queues(suite: Suite, picture: str) -> str:
    """The text between the markers, where there are many sides and no targets. Lost rows come first."""
    return "\n\n".join(
        (
            "### Where another is ahead",
            tables.lost(suite),
            "### All figures",
            picture,
            "Medians. **Bold** is the best of a column, — was not measured.",
            tables.by_side(suite),
            tables.notes(suite),
            tables.run(suite),
            "<details><summary>Counts, and the range of the repeats</summary>",
            tables.spread(suite),
            "</details>",
        )
    )


def part(suite: Suite, picture: str) -> str:
    """The text between the suite's markers."""
    return "\n\n".join(
        text
        for text in (
            tables.run(suite),
            picture,
            "Medians. **Bold** is the best of a row, ▼ a peer that beats tickwheel, — a work that a side cannot do.",
            tables.medians(suite),
            tables.notes(suite),
            "### Targets" if tables.targets(suite) else "",
            tables.targets(suite),
            "<details><summary>Counts, and the range of the repeats</summary>",
            tables.spread(suite),
            "</details>",
        )
        if text
    )


if __name__ == "__main__":
    sys.exit(main())
