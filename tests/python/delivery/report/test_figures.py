"""The figures of the page equal those of a slow count over the same store (rule D11)."""

import math
import sqlite3
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from delivery.delivering import Run, crashed, to_function
from delivery.made_store import MadeStore
from tickwheel.delivery import Answer, Letter, Message
from tickwheel.delivery.base.errors import StoreFailed, WrongUsage
from tickwheel.delivery.model.entries import Look, Requeue
from tickwheel.delivery.model.retry import Retry
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.report import write_report
from tickwheel.delivery.report.lateness import BOUNDS_US
from tickwheel.delivery.report.queries import ATTEMPTS, KEYS, NEXT, Key, Tried, look
from tickwheel.pages.steps import MOST, step_ms

FilledStore = Any  # of conftest.py
NOW_MS = 1_700_000_000_000


def message(id_: str, due_ms: int, key: str | None) -> Message:
    return Message(id_, key, due_ms, msgspec.Raw(b"1"))


def rows(desk: FilledStore, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = desk.store.rows(table)
    return found


def ranked(values: list[int]) -> dict[str, float]:
    ranks = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}
    return {name: sorted(values)[math.ceil(q * len(values)) - 1] / 1000 for name, q in ranks.items()}


@pytest.mark.parametrize("seed", range(6))
def test_counts_and_attempts_are_those_of_the_ledger__D11(desk: FilledStore, seed: int) -> None:
    desk.fill(seed)
    ledger, waiting = rows(desk, "ledger"), rows(desk, "waiting")
    outcomes = Counter(row["outcome"] for row in ledger)
    figures = look(desk.path, NOW_MS)
    counts = figures.counts
    assert counts.accepted == len(rows(desk, "messages"))
    assert (counts.delivered, counts.cancelled, counts.undeliverable) == (outcomes[1], outcomes[2], outcomes[3])
    assert (counts.waiting, counts.overdue) == (len(waiting), sum(row["due_ms"] < NOW_MS for row in waiting))
    assert counts.redelivered == sum(row["redelivered"] for row in ledger if row["outcome"] == 1)
    assert counts.since_ms == min(row["at_ms"] for row in ledger)
    tried = Counter((min(row["attempts"], ATTEMPTS), row["outcome"]) for row in ledger)
    assert figures.tried == [Tried(n, tried[n, 1], tried[n, 3]) for n in (1, 2, 3, ATTEMPTS)]


@pytest.mark.parametrize("seed", range(6))
def test_lateness_is_that_of_the_ledger__D11(desk: FilledStore, seed: int) -> None:
    desk.fill(seed)
    late = [row for row in rows(desk, "ledger") if row["outcome"] == 1 and row["lateness_us"] is not None]
    lateness = look(desk.path, NOW_MS).lateness
    assert lateness is not None
    assert lateness.count == len(late)
    assert lateness.lateness_ms == ranked([row["lateness_us"] for row in late])
    assert 5 < len(lateness.over_time) <= MOST
    by_step: dict[int, list[int]] = {}
    for row in late:
        by_step.setdefault(row["at_ms"] - row["at_ms"] % lateness.step_ms, []).append(row["lateness_us"])
    assert {it.start_ms: (it.count, it.lateness_ms) for it in lateness.over_time} == {
        start: (len(values), ranked(values)) for start, values in by_step.items()
    }
    expected = [0] * len(BOUNDS_US)
    for row in late:
        expected[next(n for n, bound in enumerate(BOUNDS_US) if row["lateness_us"] <= bound)] += 1
    assert lateness.by_size == expected


def test_the_bars_of_lateness_end_at_their_bounds__D11(desk: FilledStore) -> None:
    for late_us in (10, 11, 5 * 10**17):
        desk.deliver(late_us)
    lateness = look(desk.path, NOW_MS).lateness
    assert lateness is not None
    assert (lateness.by_size[0], lateness.by_size[1], lateness.by_size[-1]) == (1, 1, 1)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_due_next_is_what_waits__D11(desk: FilledStore, seed: int) -> None:
    desk.fill(seed)
    figures = look(desk.path, NOW_MS)
    forecast = figures.forecast
    assert forecast is not None
    coming = [row["due_ms"] for row in rows(desk, "waiting") if row["due_ms"] >= NOW_MS]
    steps = Counter(due_ms - due_ms % forecast.step_ms for due_ms in coming)
    assert len(forecast.due) <= MOST
    assert forecast.due == {start: n for start, n in steps.items() if start <= max(forecast.due)}
    assert forecast.later == len(coming) - sum(forecast.due.values())
    names = {row["seq"]: (row["id"], row["key"]) for row in rows(desk, "messages")}
    waiting = sorted((row["due_ms"], row["seq"]) for row in rows(desk, "waiting"))[:NEXT]
    assert [(it.due_ms, (it.id, it.key)) for it in figures.next] == [(due, names[seq]) for due, seq in waiting]


def test_one_in_the_far_future_does_not_squeeze_the_others__D11(desk: FilledStore) -> None:
    desk.accept(*((None, f"m{n}", NOW_MS + 60_000 * n) for n in range(60)), (None, "far", 253_402_300_799_999))
    forecast = look(desk.path, NOW_MS).forecast
    assert forecast is not None
    assert (forecast.step_ms, forecast.later, forecast.last_ms) == (60_000, 1, 253_402_300_799_999)


def test_what_is_all_overdue_is_shown_by_its_own_time__D11(desk: FilledStore) -> None:
    desk.accept((None, "a", 5), (None, "b", 60_005))
    forecast = look(desk.path, NOW_MS).forecast
    assert forecast is not None
    assert (forecast.is_past, sum(forecast.due.values()), forecast.later) == (True, 2, 0)


def test_the_busiest_keys_come_first__D11(desk: FilledStore) -> None:
    desk.fill(1)
    names = rows(desk, "messages")
    waiting = {row["seq"] for row in rows(desk, "waiting")}
    every = Counter(row["key"] for row in names if row["key"] is not None)
    waits = Counter(row["key"] for row in names if row["seq"] in waiting)
    expected = sorted(every, key=lambda key: (-every[key], key))[:KEYS]
    assert look(desk.path, NOW_MS).keys == [Key(key, every[key], waits[key]) for key in expected]


def test_the_latest_dead_letters_are_shown_and_all_are_counted__D2(desk: FilledStore) -> None:
    desk.put_letters(*(Letter("in.ndjson", n, "why", "what", b"{" + b"x" * 1000) for n in range(70)))
    figures = look(desk.path, NOW_MS)
    assert figures.counts.dead_letters == 70
    assert [letter.line for letter in figures.letters] == [*range(69, 19, -1)]
    assert figures.letters[0].record == "{" + "x" * 399 + "…"


def test_a_dead_letter_that_was_tried_again_is_not_counted__D2(tmp_path: Path) -> None:
    works: list[bool] = []

    def send(_: object) -> None:
        if not works:
            raise ValueError("not today")

    with Run(tmp_path, to_function(send), Settings(retry=Retry(max_attempts=1))) as run:
        run.deliver(message("a", 1, None), message("b", 1, None))
        works.append(True)
        run.deliver(Requeue("b", None))  # the last one
    assert look(tmp_path / "store.db", NOW_MS).counts.dead_letters == 1


def test_what_is_in_memory_alone_is_seen_while_it_is_delivered__D9(tmp_path: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    half_an_hour_ms = 1_800_000
    with Run(tmp_path, to_function(print), Settings(horizon_s=3_600)) as run:
        run.give(message("near", now_ms + half_an_hour_ms, "k"), message("far", now_ms + 4 * half_an_hour_ms, "k"))
        run.give(message("now", now_ms - 1, "other"))
        while run.running.summary.delivered == 0:
            run.give(Look("now", "other"))  # until a group with its outcome is on disk
        assert run.running.engine.in_memory()[0] == 1, "the near one"
        figures = look(tmp_path / "store.db", now_ms)
        assert run.give(message("more", now_ms, "other")) == [Answer.ACCEPTED]
    counts = figures.counts
    assert (counts.accepted, counts.delivered, counts.waiting, counts.overdue) == (3, 1, 2, 0)
    assert [it.id for it in figures.next] == ["near", "far"]
    assert figures.keys == [Key("k", 2, 2), Key("other", 1, 0)]
    assert figures.forecast is not None
    assert sum(figures.forecast.due.values()) + figures.forecast.later == 2


def test_the_store_is_not_changed_nor_its_log_that_a_crash_left__D5(tmp_path: Path) -> None:
    store = crashed(tmp_path, message("a", NOW_MS, None)) / "store.db"
    before = {path: path.read_bytes() for path in (store, store.with_name("store.db-wal"))}
    write_report(store, tmp_path / "page.html", title="x")
    assert {path: path.read_bytes() for path in before} == before
    assert all(before.values())


@pytest.mark.parametrize("kind", ["missing", "folder", "empty", "text"])
def test_what_is_not_a_store_is_wrong_usage__D2(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.db"
    if kind == "folder":
        path.mkdir()
    if kind == "empty":
        sqlite3.connect(path).close()
    if kind == "text":
        path.write_text("this is a text, not a database\n" * 100)
    with pytest.raises(WrongUsage, match="name the file that was given to --store"):
        write_report(path, tmp_path / "page.html", title="x")
    assert not (tmp_path / "page.html").exists()


def test_a_damaged_store_is_told__D2(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    MadeStore(path)
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))
    with pytest.raises(StoreFailed, match="not a store, or damaged"):
        write_report(path, tmp_path / "page.html", title="x")


@pytest.mark.parametrize("span_ms", [0, 9, 999, 61_000, 3_600_000, 10**9, 10**12, 253_402_300_799_999])
@pytest.mark.parametrize("first_ms", [0, 999_999_999])
def test_a_span_is_cut_into_few_steps_and_not_fewer_than_needed__D11(first_ms: int, span_ms: int) -> None:
    step = step_ms(first_ms, first_ms + span_ms)
    assert (first_ms + span_ms) // step - first_ms // step < MOST
    assert step == 10 or span_ms // step >= MOST // 12 - 1
