"""Packed rows: by shard, in order, in chunks, of this version (rules D4, D5, S2)."""

import random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from tickwheel.delivery import DeliveryFailed
from tickwheel.delivery.base.errors import BadRecord
from tickwheel.delivery.model.entries import Reschedule
from tickwheel.delivery.model.message import Cancel
from tickwheel.delivery.read.hand_off_rows import HANDED
from tickwheel.spark.packing import chunks, gather, in_order, pack, split_by, unpack
from tickwheel.spark.schemas import MESSAGES

from .rows import batch_of, message, row, with_partition


def ids(batch: Any) -> list[str]:
    found: list[str] = batch.column("id").to_pylist()
    return found


def test_rows_are_split_by_shard_and_come_out_whole_and_in_their_order__S2() -> None:
    rng = random.Random(1)
    rows = [row(message(f"m{n}{rng.randrange(10)}", rng.randrange(5_000), payload=b"%d" % n), n) for n in range(500)]
    rows += [row(Cancel("c3", "k")), row(Reschedule("r2", "k", 4_000)), row(BadRecord("why", "what"), 7)]
    seen: list[tuple[Any, ...]] = []
    shards = []
    for shard, piece in split_by(with_partition(*rows), "partition"):
        shards.append(shard)
        found = [tuple(one.values()) for one in unpack(piece).to_pylist()]
        assert found == [one for one in rows if int((one[0] or "0")[-1]) == shard]
        seen += found
    assert shards == sorted(set(shards))
    assert sorted(map(repr, seen)) == sorted(map(repr, rows))
    assert list(split_by(with_partition(), "partition")) == []


def test_rows_come_in_order_of_due_time_then_of_place__D4() -> None:
    late = batch_of([row(message("c", 500), 3), row(message("d", 500), 4), row(message("z", 500), 1, "z")])
    early = batch_of([row(message("b", 500), 2), row(message("e", 100), 9)])
    rows, before = in_order([late, early])
    assert ids(rows) == ["e", "b", "c", "d", "z"]
    assert before.tolist() == [4, 3, 0, 1, 2]


def test_rows_without_a_place_keep_the_order_in_which_they_came__D4() -> None:
    rows, _ = in_order([batch_of([row(message(str(n), 7), 0)]) for n in range(20)])
    assert ids(rows) == [str(n) for n in range(20)]


def test_chunks_have_a_number_of_rows_or_of_bytes_and_a_large_row_is_alone__S2() -> None:
    small = batch_of([row(message(str(n))) for n in range(4_500)])
    assert [chunk.num_rows for chunk in chunks(small)] == [2_000, 2_000, 500]
    sizes = [100, 400_000, 200_000, 600_000, 10, 10]
    mixed = batch_of([row(message(str(n), payload=b"x" * size)) for n, size in enumerate(sizes)])
    assert [chunk.num_rows for chunk in chunks(mixed)] == [2, 1, 1, 2]
    assert not list(chunks(batch_of([])))


def test_small_batches_are_gathered_and_large_ones_are_not_held_back__S2() -> None:
    small = [with_partition(row(message(str(n)))) for n in range(7)]
    assert [batch.num_rows for batch in gather(small)] == [7]
    large = [with_partition(row(message("1", payload=b"x" * (33 << 20)))), with_partition(row(message("2")))]
    assert [batch.num_rows for batch in gather(large)] == [1, 1]
    assert not list(gather([]))


@pytest.mark.parametrize("broken", [b"\x02abc", b"\xff"])
def test_a_piece_of_another_format_says_what_to_do__S4(broken: bytes) -> None:
    with pytest.raises(DeliveryFailed, match="let the version that wrote it deliver all that it holds"):
        unpack(broken)


def test_large_names_make_small_chunks_too__D12() -> None:
    rows = batch_of([row(message(f"{n}" * 100_000, 5, key="k" * 100_000)) for n in range(9)])
    assert [chunk.num_rows for chunk in chunks(rows)] == [2, 2, 2, 2, 1]


def test_a_piece_with_one_row_is_small_and_one_of_many_holds_no_more_than_they_are__S2() -> None:
    one = batch_of([row(message("a" * 20, 5, key="k" * 10, payload=b"x" * 100))])
    assert len(pack(one)) < 1_400
    assert unpack(pack(one)).schema == HANDED == pa.schema(one.schema)
    many = batch_of([row(message("a", payload=b"x" * 1_000)) for _ in range(1_000)])
    assert len(pack(many.slice(500, 1))) < 2_500


def test_the_streams_rows_are_those_of_a_hand_off__S1() -> None:
    [*columns, partition] = to_arrow_schema(MESSAGES)
    assert [(it.name, it.type) for it in columns] == [(it.name, it.type) for it in HANDED]
    assert partition.name == "partition"
