"""The figures equal those of a slow count over the same stores (rule S6)."""

import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from analysis import slow
from analysis.stores import NOW_MS
from tickwheel.analysis.figures import MESSAGES, Figure, figures, percentiles
from tickwheel.analysis.local import analyze as local_analyze
from tickwheel.analysis.written import WRITTEN
from tickwheel.delivery.model.summary import percentiles as of_summary
from tickwheel.spark.analytics.schemas import LEDGER_MESSAGES
from tickwheel.spark.analytics.tables import named

pytestmark = pytest.mark.timeout(180)

Analysis = Any  # of conftest.py


def test_the_stores_hold_everything_that_the_figures_tell_apart(analysis: Analysis) -> None:
    rows = analysis.rows
    assert len(rows) == 6_506
    assert {row["outcome"] for row in rows} == {"delivered", "cancelled", "undeliverable", "waiting"}
    for column in ("key", "at_ms", "lateness_us", "attempts"):
        assert None in {row[column] for row in rows}
    delivered = slow.late(rows)
    assert len({row["lateness_us"] for row in delivered}) < len(delivered) / 2, "many are alike"
    assert len({row["key"] for row in delivered}) > 250, "there must be more keys than are shown"


@pytest.mark.parametrize("name", slow.FIGURES)
def test_it_is_that_of_a_slow_count_in_the_same_order__S6(analysis: Analysis, name: str) -> None:
    assert analysis.figure(name) == slow.FIGURES[name](analysis.rows)


@pytest.mark.parametrize("name", slow.FIGURES)
def test_of_nothing_it_is_nothing_or_one_row_of_nothing__S6(empty: Analysis, name: str) -> None:
    assert empty.figure(name) == slow.FIGURES[name]([])


def test_percentiles_are_those_of_the_summary_for_any_number_of_values__S6(session: Any) -> None:
    rng = random.Random(3)
    counts = [*range(1, 12), 99, 100, 101, 200, 300, 700, 999, 1_000, 1_001, 3_000]
    groups = {n: [rng.choice([rng.randrange(50), rng.randrange(10**9)]) for _ in range(n)] for n in counts}
    rows = [(n, value) for n, values in groups.items() for value in values]
    rng.shuffle(rows)
    with named(session.createDataFrame(rows, "n int, lateness_us long"), "late_messages") as tables:
        found = tables.rows(Figure(percentiles("SELECT * FROM late_messages", "n")))
    expected = {n: of_summary([value / 1000 for value in values]) for n, values in groups.items()}
    assert {row["n"]: {name: row[f"{name}_ms"] for name in expected[row["n"]]} for row in found} == expected
    assert all(row["n"] == row["messages"] for row in found)


def test_the_group_without_a_name_is_a_group_too__S6(session: Any) -> None:
    late = session.createDataFrame([(None, 1), (None, 3), ("", 5)], "key string, lateness_us long")
    with named(late, "late_messages") as tables:
        rows = tables.rows(Figure(percentiles("SELECT * FROM late_messages", "key")))
    assert {row["key"]: (row["messages"], row["max_ms"]) for row in rows} == {None: (2, 0.003), "": (1, 0.005)}


@pytest.mark.parametrize("most", [1, 3])
def test_of_keys_only_so_many_are_told_and_of_equals_the_lesser__S6(session: Any, most: int) -> None:
    rows = [
        (0, n, key, f"m{n}", 0, "delivered", 0, late_us, 1, False)
        for n, (key, late_us) in enumerate([("\U0001f469", 7), ("\uffff", 7), ("b", 5), ("b", 4), ("a", 7), (None, 9)])
    ]
    plain = [dict(zip(LEDGER_MESSAGES.names, row, strict=True)) for row in rows]
    with named(session.createDataFrame(rows, LEDGER_MESSAGES), MESSAGES) as tables:
        by_key, hot = (tables.rows(figures(most)[name]) for name in ("lateness_by_key", "hot_keys"))
    assert by_key == slow.lateness_by_key(plain, most)
    assert [row["key"] for row in by_key] == (["b", "a"] if most == 1 else ["b", "a", "\uffff", "\U0001f469"])
    assert hot == slow.hot_keys(plain, most)
    assert [row["key"] for row in hot] == ["b", "a", "\uffff"][:most]


def test_the_files_are_those_of_an_analysis_without_spark__S6(analysis: Analysis, tmp_path: Path) -> None:
    local_analyze(analysis.stores, tmp_path / "out", say=lambda _: None, wall_ns=lambda: NOW_MS * 1_000_000)
    for name in WRITTEN:
        here, there = (pq.read_table(out / name) for out in (tmp_path / "out", analysis.out))
        columns = [[(column.name, column.type) for column in table.schema] for table in (here, there)]
        assert columns[0] == columns[1], name
        assert here.to_pylist() == there.to_pylist(), name
    assert (tmp_path / "out" / "index.html").read_text("utf-8") == analysis.page
