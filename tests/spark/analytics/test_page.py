"""The page: the figures in words and tables; no key can break it; it needs no network (rules S6, D12)."""

import re
from pathlib import Path
from typing import Any

import pytest

from analysis import slow
from analysis.stores import NOW_MS, ODD_KEYS
from delivery.report.test_page import Outline
from tickwheel.spark.analytics import analyze

pytestmark = pytest.mark.timeout(180)

Analysis = Any  # of conftest.py


def rows_of(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    table = page.split(f">{heading}</h")[1].split("<table")[1].split("</table>")[0]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table.split("<tr>")[2:]]
    return [[re.sub(r"<[^>]+>", "", cell) for cell in row] for row in rows]


def test_what_a_key_says_is_text_and_nothing_else__D12(analysis: Analysis) -> None:
    outline = Outline(analysis.page)
    assert outline.tags.isdisjoint({"script", "img", "b", "iframe", "link", "object", "a"})
    assert {name for name, _ in outline.attributes if name.startswith("on")} == set()
    assert analysis.stores[0].name in outline.text, "the name of a store too"
    assert "1337" not in outline.text
    assert "\u202e" not in analysis.page
    assert "x" * 121 not in analysis.page
    assert max(analysis.page.count(text) for text in ("alert(1)", "{{ 7 * 191 }}", "mirrored", "x" * 120)) > 0


def test_every_odd_key_is_shown_as_text__D12(session: Any, tmp_path: Path) -> None:
    from delivery.made_store import MadeStore

    store = MadeStore(tmp_path / "s.db")
    store.accept(*((key, "m", NOW_MS) for key in ODD_KEYS))
    analyze(session, [store.path], tmp_path / "out", wall_ns=lambda: NOW_MS * 1_000_000)
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    outline = Outline(page)
    shown = ["empty text", "white space", "a␀b␛[31m", "<script>alert(1)</script>", "</style></svg>{{ 7 * 191 }}",
             "\"'><img src=x onerror=a()>", "\\u202emirrored", "&lt;b&gt;", "x" * 120 + "…", "null"]  # fmt: skip
    for text in shown:
        assert text in outline.words
    assert outline.tags.isdisjoint({"script", "img", "b"})
    assert "14 messages waiting, 0 of them overdue" in outline.text


def test_nothing_is_fetched__S6(analysis: Analysis) -> None:
    page = analysis.page
    assert re.findall(r"https?:|//[a-z]|@import|url\((?!#)", page) == []
    assert "Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"" in page
    outline = Outline(page)
    assert [value for name, value in outline.attributes if name in ("src", "srcset", "action")] == []
    assert all(value.startswith("#") for name, value in outline.attributes if name.endswith("href"))


def test_every_chart_is_whole_and_has_words_and_colours_of_the_page__S6(analysis: Analysis) -> None:
    page = analysis.page
    outline = Outline(page)
    assert len(outline.ids) == len(set(outline.ids))
    assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', page)) <= set(outline.ids)
    labels = [value for name, value in outline.attributes if name == "aria-label"]
    assert len(labels) == page.count("<svg ") == 2 * 4
    assert all(len(label) > 60 for label in labels)
    assert outline.text.count("ended at (UTC, from 2023-11-14T19:10)") == 2
    charts = "".join(re.findall(r"<svg .*?</svg>", page, flags=re.DOTALL))
    assert re.findall(r"#[0-9a-f]{6}\b", charts) == []
    assert all(page.count(f"{name}: #") == 3 for name in set(re.findall(r"var\((--\w+)\)", charts)))


def test_its_tables_are_the_figures__S6(analysis: Analysis) -> None:
    rows, page = analysis.rows, analysis.page
    outcomes = {
        name: sum(row["outcome"] == name for row in rows) for name in ("delivered", "cancelled", "undeliverable")
    }
    assert {row[0]: int(row[1].replace(",", "")) for row in rows_of(page, "Outcomes")[:3]} == outcomes
    assert [row[1] for row in rows_of(page, "Ledgers")] == ["4,003", "2,503"]
    late = slow.lateness(rows)[0]
    names = ("p50_ms", "p99_ms", "p999_ms", "max_ms")
    assert [row[1] for row in rows_of(page, "Lateness")] == [f"{late[name]:,.3f} ms" for name in names]
    steps = slow.throughput(rows, 600_000)
    columns = ("delivered", "cancelled", "undeliverable", "attempts")
    assert [row[1:] for row in rows_of(page, "Throughput")] == [[f"{row[it]:,}" for it in columns] for row in steps]
    over_time = slow.lateness_by_minute(rows, 600_000)
    assert [row[1:] for row in rows_of(page, "Over time")] == [
        [f"{row['messages']:,}", *(f"{row[name]:,.3f}" for name in names)] for row in over_time
    ]
    assert [int(row[1].replace(",", "")) for row in rows_of(page, "By size")] == [
        row["messages"] for row in slow.lateness_by_size(rows)
    ]
    hot = slow.hot_keys(rows)[:15]
    assert [row[1] for row in rows_of(page, "With most messages")] == [f"{row['messages']:,}" for row in hot]
    latest = sorted((row for row in slow.lateness_by_key(rows) if row["latest"]), key=lambda row: row["latest"])[:15]
    assert [row[-1] for row in rows_of(page, "The latest, in milliseconds")] == [
        f"{row['max_ms']:,.3f}" for row in latest
    ]
    tried = [sum(row["attempts"] == n and row["outcome"] == "delivered" for row in rows) for n in (0, 1, 2, 3, 15)]
    assert [row[1] for row in rows_of(page, "Retries")] == [f"{n:,}" for n in tried]
    assert rows_of(page, "Retries")[-1][0] == "10 or more attempts"
    assert [int(row[1].replace(",", "")) for row in rows_of(page, "Repeats")] == [*slow.repeats(rows)[0].values()]


def test_what_is_due_next_is_told_and_what_is_too_far_is_not_drawn__S6(analysis: Analysis) -> None:
    due = [row["due_ms"] for row in analysis.rows if row["outcome"] == "waiting"]
    overdue = sum(due_ms < NOW_MS for due_ms in due)
    text = Outline(analysis.page).text
    assert f"{len(due):,} messages waiting, {overdue:,} of them overdue" in text
    assert "2 messages due later, the last at 9999-12-31T23:59:59.999Z" in text
    drawn = sum(int(row[1]) for row in rows_of(analysis.page, "Due next"))
    assert drawn == len(due) - overdue - 2


def test_what_is_all_overdue_is_told__S6(session: Any, tmp_path: Path) -> None:
    from delivery.made_store import MadeStore

    store = MadeStore(tmp_path / "s.db")
    store.accept((None, "a", 5), (None, "b", 60_005))
    page = analyze(session, [store.path], tmp_path / "out").read_text(encoding="utf-8")
    assert "2 messages waiting, all overdue" in page
    assert sum(int(row[1]) for row in rows_of(page, "Due next")) == 2


def test_of_nothing_it_has_sentences__S6(empty: Analysis) -> None:
    outline = Outline(empty.page)
    assert "svg" not in outline.tags
    for sentence in (
        "Analysis of 1 ledger", "The ledgers know no message.", "No message has its outcome yet.",
        "Nothing was delivered yet", "No message has a key.", "No delivery was attempted yet.",
        "No message is waiting.",
    ):  # fmt: skip
        assert sentence in outline.text


def test_every_file_is_named_on_it_and_is_there__S6(analysis: Analysis) -> None:
    named = {row[0] for row in rows_of(analysis.page, "Files")}
    assert named == {path.name for path in analysis.out.iterdir()} - {"index.html", ".tickwheel"}
    assert all([*(analysis.out / name).glob("*.parquet")] for name in named)
    assert analysis.said[0] == "Reading 9 slices of up to 900 messages."
    assert analysis.said[-1] == "Making index.html."
