"""Packed rows: by shard and second, in order, of this version (rules D4, D5, S2)."""

import random
from typing import Any

import pyarrow as pa
import pytest

from tickwheel.delivery import DeliveryFailed
from tickwheel.delivery.entries import Reschedule
from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.handed import HANDED
from tickwheel.delivery.message import Cancel
from tickwheel.spark.packing import NO_SECOND, merge, pack, unpack

from .rows import batch_of, message, row, with_partition


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


def test_a_message_that_came_twice_stays_twice_for_the_deliverer_to_count__D5() -> None:
    same = [piece(row(message("a", 5, key="k"), n)) for n in (3, 1, 2)]
    assert unpack(merge(same)).column("line").to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("broken", [b"", b"\x02abc", b"\xff"])
def test_a_piece_of_another_version_says_what_to_do__S4(broken: bytes) -> None:
    with pytest.raises(DeliveryFailed, match="go on with the version that wrote it"):
        unpack(broken)


def test_a_piece_with_one_row_is_small__S2() -> None:
    assert len(piece(row(message("a" * 20, 5, key="k" * 10, payload=b"x" * 100)))) < 1_200
    assert unpack(piece(row(message("a")))).schema == HANDED == pa.schema(batch_of([]).schema)
