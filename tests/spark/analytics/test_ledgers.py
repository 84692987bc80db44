"""Ledgers are read completely, in the state that `look` found, and are not changed (rule S6); without a JVM."""

import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from analysis import slow
from analysis.stores import NOW_MS, fill
from delivery.made_store import Done, MadeStore
from tickwheel.analysis.ledgers import Ledger, look, of_ledgers
from tickwheel.delivery import DeliveryQueue
from tickwheel.delivery.base.errors import StoreFailed, WrongUsage
from tickwheel.delivery.model.entries import Outcome
from tickwheel.spark.analytics.ledgers import arrow_of
from tickwheel.spark.analytics.schemas import LEDGER_MESSAGES

pytestmark = pytest.mark.timeout(60)


def read(ledgers: Sequence[Ledger]) -> list[dict[str, Any]]:
    batches = [batch for ledger in ledgers for part in ledger.slices for batch in arrow_of(part)]
    assert all(batch.schema.names == LEDGER_MESSAGES.names for batch in batches)
    return in_order([row for batch in batches for row in batch.to_pylist()])


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["ledger"], row["seq"]))


@pytest.fixture
def store(tmp_path: Path) -> MadeStore:
    return MadeStore(tmp_path / "s.db")


@pytest.mark.parametrize("slice_rows", [1, 7, 300, 301, 100_000])
def test_slices_are_all_messages_each_once__S6(tmp_path: Path, slice_rows: int) -> None:
    paths = [tmp_path / "a.db", tmp_path / "b.db"]
    fill(paths[0], seed=1, messages=300)
    fill(paths[1], seed=2, messages=40)
    ledgers = look(paths, slice_rows)
    assert read(ledgers) == in_order(slow.read(paths))
    sizes = [sum(batch.num_rows for batch in arrow_of(part)) for ledger in ledgers for part in ledger.slices]
    assert max(sizes) <= slice_rows
    assert sum(sizes) == 346


def test_a_slice_comes_in_batches_that_memory_can_hold__S6(store: MadeStore) -> None:
    store.accept(*((None, f"m{n}", n) for n in range(25_000)))
    [part] = look([store.path])[0].slices
    assert [batch.num_rows for batch in arrow_of(part)] == [10_000, 10_000, 5_000]


def test_it_stays_as_it_was_looked_at_while_delivery_goes_on__S6(store: MadeStore) -> None:
    seqs = store.accept(*(("k", f"m{n}", NOW_MS + n % 7) for n in range(40)))
    store.finish(*(Done(seq, Outcome.DELIVERED, NOW_MS, 5, 1) for n, seq in enumerate(seqs[:20])))
    ledgers = look([store.path], slice_rows=3)
    before = read(ledgers)
    assert before == in_order(slow.read([store.path]))
    later = [Outcome.DELIVERED, Outcome.CANCELLED, Outcome.DEAD]
    store.finish(*(Done(seq, later[n % 3], NOW_MS, 9, 2) for n, seq in list(enumerate(seqs))[20:35]))
    new = store.accept(("k", "new", NOW_MS + 1), ("k", "new too", NOW_MS + 2))
    store.finish(Done(new[0], Outcome.DELIVERED, NOW_MS, 9, 2))
    assert read(ledgers) == before
    assert len(read(look([store.path], slice_rows=3))) == 42


def test_what_is_forgotten_is_not_told_also_where_its_last_row_stays__S6(store: MadeStore) -> None:
    seqs = store.accept((None, "a", 1), (None, "b", 2))
    store.finish(*(Done(seq, Outcome.DELIVERED, 5, 7, 1) for n, seq in enumerate(seqs)))
    with store.open() as db:
        db.execute("DELETE FROM messages WHERE seq = ?", (seqs[1],))
    assert [row["id"] for row in read(look([store.path]))] == ["a"]


def test_a_store_in_use_is_not_changed_and_no_writer_waits__S6_D9(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    far_ms = 4_000_000_000_000
    with DeliveryQueue(path, to=lambda delivery: None) as queue:
        queue.put_many([(f"m{n}", far_ms, n) for n in range(30)])
        (tmp_path / "crashed").mkdir()
        copies = [tmp_path / "crashed" / f"s.db{suffix}" for suffix in ("", "-wal")]
        for copy in copies:
            shutil.copy(tmp_path / copy.name, copy)
        before = [copy.read_bytes() for copy in copies]
        assert len(read(look([copies[0]]))) == 30
        assert [copy.read_bytes() for copy in copies] == before
        assert all(before), "the log holds something"
        ledgers = look([path])
        queue.put("one more", due=far_ms)
        assert len(read(ledgers)) == 30
        assert len(read(look([path]))) == 31


@pytest.mark.parametrize("kind", ["missing", "folder", "empty", "text", "other database", "some tables"])
def test_what_is_no_store_is_wrong_usage_and_left_alone__D2(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.db"
    if kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    elif kind == "text":
        path.write_text("no database" * 1_000)
    elif kind != "missing":
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE waiting (x)" if kind == "some tables" else "CREATE TABLE other (x)")
        db.close()
    before = path.read_bytes() if path.is_file() else None
    expected = "there is no store" if kind in ("missing", "folder") else "is not a store of tickwheel"
    with pytest.raises(WrongUsage, match=expected):
        look([path])
    assert (path.read_bytes() if path.is_file() else None) == before
    assert path.exists() == (kind != "missing")


def test_a_store_that_is_named_twice_or_copied_is_wrong_usage__D2(store: MadeStore, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    shutil.copy(store.path, copy)
    for paths in ([store.path, store.path], [store.path, copy]):
        with pytest.raises(WrongUsage, match="the same store as"):
            look(paths)
    with pytest.raises(WrongUsage, match="no ledger is named"):
        look([])


def test_a_damaged_store_says_so__D2(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    fill(path, seed=1, messages=3_000)
    data = bytearray(path.read_bytes())
    data[4096 * 8 :] = b"\xff" * (len(data) - 4096 * 8)
    path.write_bytes(data)
    with pytest.raises(StoreFailed, match="damaged"):
        read(look([path]))


def test_each_ledger_has_its_facts__S6(tmp_path: Path) -> None:
    odd = tmp_path / "a <b>\udcff.db"
    fill(odd, seed=1, messages=10)
    [row] = of_ledgers(look([odd]), 7).to_pylist()
    assert (row["ledger"], row["as_of_ms"], row["dead_letters"], row["conflicts"]) == (0, 7, 5, 3)
    assert row["path"].endswith("a <b>\ufffd.db")
    assert of_ledgers([], 7).schema.field("path").type == pa.string()
