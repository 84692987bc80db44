"""Packed rows: by shard and second, in order, without copies, of this version (rules D4, D5, S2)."""

import random
from typing import Any

import pyarrow as pa
import pytest

from tickwheel.delivery import DeliveryFailed
from tickwheel.delivery.entries import Reschedule
from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.handed import HANDED
from tickwheel.delivery.message import Cancel, Message
from tickwheel.spark.packing import NO_SECOND, merge, pack, unpack

from .rows import NOW_MS, batch_of, message, row, with_partition


def piece(*rows: tuple[Any, ...]) -> bytes:
    [packed] = pack(with_partition(*rows, partition=0), 8).column("rows").to_pylist()
    return bytes(packed)


def ids(batch: Any) -> list[str]:
    found: list[str] = batch.column("id").to_pylist()
    return found


def test_rows_are_packed_by_shard_and_second_and_come_out_whole__S2() -> None:
    rng = random.Random(1)
    rows = [row(message(f"m{n}{rng.randrange(10)}", rng.randrange(5_000), payload=b"%d" % n), n) for n in range(500)]
    rows += [row(Cancel("c3", "k")), row(Reschedule("r2", "k", 4_000)), row(BadRecord("why", "what"), 7)]
    packed = pack(with_partition(*rows), 4)
    groups = list(zip(packed.column("shard").to_pylist(), packed.column("second").to_pylist(), strict=True))
    assert len(set(groups)) == len(groups)
    seen = []
    for (shard, second), rows_ in zip(groups, packed.column("rows"), strict=True):
        for one in unpack(rows_.as_py()).to_pylist():
            assert int((one["id"] or "0")[-1]) % 4 == shard
            passes = one["due_ms"] is None or one["payload"] is None
            assert second == (NO_SECOND if passes else one["due_ms"] // 1000)
            seen.append(tuple(one.values()))
    assert sorted(map(repr, seen)) == sorted(map(repr, rows))


def test_an_empty_batch_packs_to_nothing__S2() -> None:
    assert pack(with_partition(), 4).num_rows == 0


def test_pieces_are_merged_in_order_of_due_time_then_of_place__D4() -> None:
    late = piece(row(message("c", 500), 3), row(message("d", 500), 4))
    early = piece(row(message("b", 500), 2), row(message("e", 100), 9))
    assert ids(unpack(merge([late, early]))) == ["e", "b", "c", "d"]


def test_rows_without_a_place_keep_the_order_in_which_they_came__D4() -> None:
    pieces = [piece(row(message(str(n), 7), 0)) for n in range(20)]
    assert ids(unpack(merge(pieces))) == [str(n) for n in range(20)]


def test_the_same_message_is_kept_once_and_its_copies_are_counted__D5() -> None:
    same = [piece(row(message("a", 5, key="k"), n)) for n in (3, 1, 2)]
    others = [
        row(message("a", 5), 9),  # another key
        row(message("a", 5, key="k", payload=b"2"), 10),  # other content
        row(message("a", 6, key="k"), 11),  # another due time
        row(Message("a", "k", NOW_MS + 5, b"1"), 12),  # bytes, not JSON
        row(Cancel("a", "k"), 13),
        row(Cancel("a", "k"), 14),
    ]
    merged = unpack(merge([*same, piece(*others[:4])]))
    assert merged.num_rows == 5
    assert {one["line"]: one["copies"] for one in merged.to_pylist()} == {1: 2, 9: 0, 10: 0, 11: 0, 12: 0}
    cancels = unpack(merge([piece(*others[4:])]))
    assert cancels.num_rows == 2, "each cancel has its own answer"
    again = unpack(merge([merge(same), same[0]]))
    assert again.column("copies").to_pylist() == [3]


def test_a_delay_is_the_same_as_it_was_given_whenever_it_was_read__D5() -> None:
    first = row(message("a", 5, delay_ms=100.0), 1)
    later = row(message("a", 9, delay_ms=100.0), 2)
    [kept] = unpack(merge([piece(first), piece(later)])).to_pylist()
    assert (kept["due_ms"], kept["copies"]) == (NOW_MS + 5, 1)


@pytest.mark.parametrize("broken", [b"", b"\x03abc", b"\xff"])
def test_a_piece_of_another_version_says_what_to_do__S4(broken: bytes) -> None:
    with pytest.raises(DeliveryFailed, match="go on with the version that wrote it"):
        unpack(broken)


def test_a_piece_with_one_row_is_small__S2() -> None:
    assert len(piece(row(message("a" * 20, 5, key="k" * 10, payload=b"x" * 100)))) < 1_200
    assert unpack(piece(row(message("a")))).schema == HANDED == pa.schema(batch_of([]).schema)
