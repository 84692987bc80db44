"""`tickwheel analyze` without Spark: the figures are those of a slow count, and the page is that of Spark (rule S6)."""

import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from analysis import slow
from analysis.stores import NOW_MS, fill
from delivery.made_store import MadeStore
from delivery.report.test_page import Outline
from tickwheel.analysis.figures import MESSAGES, Figure, figures, percentiles
from tickwheel.analysis.ledgers import MESSAGE
from tickwheel.analysis.local import Messages, analyze
from tickwheel.commands import tickwheel
from tickwheel.delivery.model.summary import percentiles as of_summary

pytestmark = pytest.mark.timeout(60)


@dataclass
class Analysis:
    out: Path
    rows: list[dict[str, Any]]
    said: list[object]

    def figure(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = pq.read_table(self.out / f"{name}.parquet").to_pylist()
        return found


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    """Of two stores, in slices."""
    folder = tmp_path_factory.mktemp("analysis")
    stores = [folder / "a <b>&.db", folder / "b ?#%20.db"]
    fill(stores[0], seed=1, messages=4_000)
    fill(stores[1], seed=2, messages=2_500)
    said: list[object] = []
    analyze(stores, folder / "out", say=said.append, slice_rows=900, wall_ns=lambda: NOW_MS * 1_000_000)
    return Analysis(folder / "out", slow.read(stores), said)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    folder = tmp_path_factory.mktemp("empty")
    MadeStore(folder / "s.db")
    analyze([folder / "s.db"], folder / "out", say=lambda _: None)
    return Analysis(folder / "out", [], [])


def messages_of(*rows: tuple[Any, ...]) -> Iterator[list[tuple[Any, ...]]]:
    yield list(rows)


def test_every_figure_has_its_slow_count() -> None:
    assert figures().keys() == slow.FIGURES.keys()


@pytest.mark.parametrize("name", slow.FIGURES)
def test_it_is_that_of_a_slow_count_in_the_same_order__S6(analysis: Analysis, name: str) -> None:
    assert analysis.figure(name) == slow.FIGURES[name](analysis.rows)


@pytest.mark.parametrize("name", slow.FIGURES)
def test_of_nothing_it_is_nothing_or_one_row_of_nothing__S6(empty: Analysis, name: str) -> None:
    assert empty.figure(name) == slow.FIGURES[name]([])


def test_percentiles_are_those_of_the_summary_for_any_number_of_values__S6() -> None:
    rng = random.Random(3)
    counts = [*range(1, 12), 99, 100, 101, 200, 300, 700, 999, 1_000, 1_001, 3_000]
    groups = {n: [rng.choice([rng.randrange(50), rng.randrange(10**9)]) for _ in range(n)] for n in counts}
    rows = [(0, 1, str(n), "m", 0, "delivered", 0, value, 1, False) for n, them in groups.items() for value in them]
    rng.shuffle(rows)
    found = Messages(messages_of(*rows)).rows(Figure(percentiles(f"SELECT key, lateness_us FROM {MESSAGES}", "key")))
    expected = {str(n): of_summary([value / 1000 for value in values]) for n, values in groups.items()}
    assert {row["key"]: {name: row[f"{name}_ms"] for name in of_summary([])} for row in found} == expected


@pytest.mark.parametrize("most", [1, 3])
def test_of_keys_only_so_many_are_told_and_of_equals_the_lesser__S6(most: int) -> None:
    rows = [
        (0, n, key, f"m{n}", 0, "delivered", 0, late_us, 1, False)
        for n, (key, late_us) in enumerate([("\U0001f469", 7), ("\uffff", 7), ("b", 5), ("b", 4), ("a", 7), (None, 9)])
    ]
    plain = [dict(zip(MESSAGE, row, strict=True)) for row in rows]
    messages = Messages(messages_of(*rows))
    assert messages.rows(figures(most)["lateness_by_key"]) == slow.lateness_by_key(plain, most)
    assert messages.rows(figures(most)["hot_keys"]) == slow.hot_keys(plain, most)


def test_a_due_time_before_1970_is_in_the_minute_that_it_is_in__S6() -> None:
    rows = [
        (0, n, None, f"m{n}", due_ms, "waiting", None, None, None, False) for n, due_ms in enumerate([-1, -60_000, 0])
    ]
    forecast = Messages(messages_of(*rows)).rows(figures()["due_forecast"])
    minutes = [(row["start_ms"], row["messages"]) for row in forecast if row["unit"] == "minute"]
    assert minutes == [(-60_000, 2), (0, 1)]


def test_the_page_shows_them_and_no_key_is_anything_but_text__D12(analysis: Analysis) -> None:
    page = (analysis.out / "index.html").read_text("utf-8")
    outline = Outline(page)
    assert outline.tags.isdisjoint({"script", "img", "b", "iframe", "link", "object", "a"})
    waiting = sum(row["outcome"] == "waiting" for row in analysis.rows)
    assert f"{waiting:,}" in " ".join(outline.text.split())
    assert "Analysis of 2 ledgers" in page
    assert analysis.said[-1] == "Making index.html."


def run(*args: object) -> Result:
    return CliRunner().invoke(tickwheel, ["analyze", *map(str, args)])


def test_one_ledger_is_analyzed_here_and_spark_is_not_imported__S6(tmp_path: Path) -> None:
    fill(tmp_path / "s.db", seed=1, messages=50)
    script = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from tickwheel.commands.analyze import analyze; analyze(['s.db', '--out', 'out'], prog_name='analyze')"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.endswith("Making index.html.\nDone: out/index.html\n")
    assert sum(pq.read_table(tmp_path / "out/outcomes.parquet")["messages"].to_pylist()) == 53


@pytest.mark.parametrize("library", ["matplotlib", "jinja2", "pyarrow.parquet"])
def test_a_missing_library_is_wrong_usage__D2(tmp_path: Path, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "s.db", seed=1, messages=5)
    monkeypatch.setitem(sys.modules, library, None)
    result = run(tmp_path / "s.db", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert f"{library.partition('.')[0]} is not installed: run pip install 'tickwheel[" in " ".join(
        result.stderr.split()
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["none.db", "--out", "out"], "there is no store none.db"),
        (["page.txt", "--out", "out"], "page.txt is not a store of tickwheel"),
        (["s.db", "--out", "."], "--out: . holds other things (page.txt)"),
        (["s.db", "--out", "out", "--engine", "local", "--events", "e"], "--events needs Spark"),
        (["s.db", "s.db", "--out", "out", "--engine", "local"], "the same store as s.db"),
    ],
)
def test_wrong_usage_is_told_and_nothing_is_written__D2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "s.db", seed=1, messages=5)
    Path("page.txt").write_text("no database")
    result = run(*args)
    assert result.exit_code == 2
    assert message in re.sub(r"\s+", " ", result.stderr)
    assert {path.name for path in Path().iterdir()} == {"page.txt", "s.db"}


def test_a_folder_that_cannot_be_written_is_a_failure_and_leaves_nothing__D13(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "s.db", seed=1, messages=5)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tickwheel.analysis.local.pq.write_table", full)
    result = run(tmp_path / "s.db", "--out", tmp_path / "out")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (
        3,
        f"Failed: {tmp_path / 'out'} can't be written: No space left on device.",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]
