"""The rows of a hand-off: what is held and sent, and the partition of each (rules S3, S5)."""

from tickwheel._native import ArrowRows, NdjsonLines
from tickwheel.delivery.model.message import MAX_PAYLOAD, Columns
from tickwheel.delivery.read.arrow import stream_of
from tickwheel.delivery.read.hand_off_rows import HANDED, PARTITIONS, batch_of

LINES = b"""{"id": "a", "key": "customer 3", "due": 1700000000005}
{"id": "b", "key": "customer 3", "op": "cancel"}
{"id": "c", "key": "customer 3", "op": "reschedule", "due": 1700000000006}
{"id": "a", "due": 1700000000005}
{"id": "a", "op": "cancel"}
{}
"""


def test_each_row_has_the_partition_of_its_key_or_of_its_name__S5() -> None:
    read = NdjsonLines("in", Columns(), MAX_PAYLOAD).read(LINES, first_line=1_000)
    batch = batch_of(read)
    assert PARTITIONS == 64
    assert batch.schema.names == [*HANDED.names, "partition"]
    assert batch.column("partition").to_pylist() == [13, 13, 13, 1, 1, 1_005 % 64]
    assert batch.column("again").to_pylist() == [False] * 6


def test_what_is_held_is_what_a_deliverer_reads__S3() -> None:
    read = NdjsonLines("in", Columns(), MAX_PAYLOAD).read(LINES)
    rows = batch_of(read).select(HANDED.names)
    assert rows.schema == HANDED
    [records] = ArrowRows.hand_off(MAX_PAYLOAD).body().add(stream_of(rows))
    assert len(records) == 6
