"""The page: one file that needs no network, that no message text can break, with a sentence for each empty section."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from delivery.made_store import Done
from tickwheel.delivery.model.entries import Outcome
from tickwheel.delivery.report import plots
from tickwheel.delivery.report.forecast import Forecast

FilledStore = Any  # of conftest.py
NOW_MS = 1_700_000_000_000
VOID = {"meta"}


class Outline(HTMLParser):
    """Tags, attributes and the text outside of styles; every tag must be closed where it was opened."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.ids: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.words.append(data)


def test_what_a_message_says_is_text_and_nothing_else__D12(nasty: FilledStore) -> None:
    outline = Outline(nasty.page(title="<script>alert('title')</script>"))
    assert outline.tags.isdisjoint({"script", "img", "b", "iframe", "link", "object", "a"})
    assert {name for name, _ in outline.attributes if name.startswith("on")} == set()
    for shown in ("<script>alert('title')</script>", "<script>alert(1)</script>", "{{ 7 * 191 }}", "&lt;b&gt;"):
        assert shown in outline.text
    assert "1337" not in outline.text
    assert "a␀b␛[31m" in outline.text
    assert "\\u202emirrored" in outline.text
    assert "\u202e" not in outline.text
    assert "x" * 120 + "…" in outline.text
    assert "x" * 401 not in outline.text


def test_nothing_is_fetched__D11(nasty: FilledStore) -> None:
    page = nasty.page()
    assert re.findall(r"https?:|//[a-z]|@import|url\((?!#)", page) == []
    assert "Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"" in page
    outline = Outline(page)
    assert [value for name, value in outline.attributes if name in ("src", "srcset", "action")] == []
    assert all(value.startswith("#") for name, value in outline.attributes if name.endswith("href"))


def test_every_chart_is_whole_and_has_words__D11(nasty: FilledStore) -> None:
    page = nasty.page()
    outline = Outline(page)
    assert len(outline.ids) == len(set(outline.ids))
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', page))
    assert used <= set(outline.ids)
    labels = [value for name, value in outline.attributes if name == "aria-label"]
    assert len(labels) == page.count("<svg ") == 2 * 3
    assert all(len(label) > 60 for label in labels)
    for axis in ("lateness (ms, log scale)", "messages (log scale)", "delivered at (UTC, from 2023-11-14T22:13)"):
        assert outline.text.count(axis) >= 2
    assert "messages per " in outline.text


def test_colours_are_the_pages_in_light_and_dark__D11(nasty: FilledStore) -> None:
    charts = "".join(re.findall(r"<svg .*?</svg>", nasty.page(), flags=re.DOTALL))
    assert re.findall(r"#[0-9a-f]{6}\b", charts) == []
    used = set(re.findall(r"var\((--\w+)\)", charts))
    assert used == {"--grid", "--bar", "--line1", "--line2", "--line3"}
    page = nasty.page()
    assert all(page.count(f"{name}: #") == 3 for name in used), "light, dark and print"


def test_the_same_store_at_the_same_time_gives_the_same_page__D11(nasty: FilledStore) -> None:
    first = nasty.page()
    assert nasty.page() == first
    nasty.now_ms += 1
    assert nasty.page() != first


def test_an_empty_store_is_told_in_sentences__D11(desk: FilledStore) -> None:
    outline = Outline(desk.page())
    assert "svg" not in outline.tags
    for sentence in (
        "Nothing was delivered yet", "No message is waiting.", "There are none.", "No message has a key.",
        "No delivery was attempted yet.", "Nothing was redelivered.",
    ):  # fmt: skip
        assert sentence in outline.text


def test_one_of_each_is_enough_for_a_page__D11(desk: FilledStore) -> None:
    desk.accept(("k", "waits", NOW_MS))
    desk.deliver(0)
    [seq] = desk.accept((None, "found at its destination after a crash", 5))
    desk.finish(Done(seq, Outcome.DELIVERED, NOW_MS, redelivered=True))
    outline = Outline(desk.page())
    assert "1 message waiting" in outline.text
    assert "1 message went out marked as redelivered" in outline.text
    assert "2023-11-14T22:13:20.000Z" in outline.text


@pytest.mark.parametrize("start_ms", [0, NOW_MS])
@pytest.mark.parametrize("steps", [1, 2, 25, 60])
@pytest.mark.parametrize("step", [10, 1_000, 60_000, 3_600_000, 10_800_000, 86_400_000, 31_536_000_000])
def test_a_chart_of_any_span_has_a_few_times_on_its_axis__D11(start_ms: int, steps: int, step: int) -> None:
    first = start_ms // step * step
    due = {first: 1, first + (steps - 1) * step: 3}
    for size, most in (("narrow", 6), ("wide", 10)):
        svg = plots.due_next(Forecast(step, due, 0, 0, is_past=False))[size]
        ticks = re.findall(r'id="[a-z-]*xtick_\d+"', svg)
        assert 1 <= len(ticks) <= most, (size, len(ticks))


def test_the_last_time_of_all_can_be_drawn__D11(desk: FilledStore) -> None:
    desk.accept((None, "a", 253_402_300_799_999), (None, "b", 0))
    assert "9999-12-31T23:59:59.999Z" in desk.page()
