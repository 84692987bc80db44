"""Arrow batches, Parquet files and Arrow streams with random and mutated input: no crash, and each row counts."""

import io
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from delivery.batches import found, pieces
from delivery.fuzzing import NAMES, checked, fuzz, mutated, parsed, timed
from delivery.records import DUE_MS, Item, found_in, rows_of_parquet
from tickwheel.delivery.base.errors import BadRecord
from tickwheel.delivery.model.message import Message

pytestmark = timed

TYPES = [
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.int64(),
    pa.uint8(),
    pa.float64(),
    pa.bool_(),
    pa.timestamp("ns", "UTC"),
    pa.timestamp("s", "Europe/Berlin"),
    pa.timestamp("us"),
    pa.date32(),
    pa.date64(),
    pa.time64("ns"),
    pa.duration("us"),
    pa.decimal128(20, 3),
    pa.list_(pa.float64()),
    pa.struct([("a", pa.string()), ("b", pa.list_(pa.timestamp("us", "UTC")))]),
    pa.map_(pa.string(), pa.int64()),
    pa.null(),
]


def cells_of(type_: Any) -> st.SearchStrategy[Any]:
    """Values that an array of the type may have, also those that Python's own types can't have."""
    t = pa.types
    if t.is_string(type_) or t.is_large_string(type_):
        return st.text(max_size=6) | st.sampled_from(["cancel", "AA==", "[1]", "5", "2026-01-31T08:00:00Z"])
    if t.is_binary(type_):
        return st.binary(max_size=6)
    if t.is_boolean(type_):
        return st.booleans()
    if t.is_floating(type_):
        return st.floats()
    if t.is_decimal(type_):
        return st.decimals(-(10**9), 10**9, places=3)
    if t.is_list(type_):
        return st.lists(st.none() | cells_of(type_.value_type), max_size=3)
    if t.is_map(type_):
        return st.lists(st.tuples(cells_of(type_.key_type), st.none() | cells_of(type_.item_type)), max_size=3)
    if t.is_struct(type_):
        return st.fixed_dictionaries({field.name: st.none() | cells_of(field.type) for field in type_})
    if t.is_null(type_):
        return st.none()
    bits = 7 if t.is_uint8(type_) else 31 if t.is_date32(type_) else 63
    return st.integers(0 if bits == 7 else -(2**bits), 2**bits - 1) | st.integers(0, 100)


def array_of(type_: Any, found: list[Any]) -> Any:
    if pa.types.is_temporal(type_):
        return pa.array(found, pa.int32() if pa.types.is_date32(type_) else pa.int64()).view(type_)
    return pa.array(found, type_)


@st.composite
def batches(draw: st.DrawFn) -> Any:
    count = draw(st.integers(0, 6))
    names = draw(st.lists(st.sampled_from(NAMES), max_size=5, unique=draw(st.integers(0, 9)) > 0))
    names = names if "id" in names or draw(st.integers(0, 9)) == 0 else ["id", *names]
    columns = []
    for name in names:
        type_ = draw(st.sampled_from(TYPES[:1] * 30 + TYPES if name in ("id", "key") else TYPES))
        array = array_of(type_, draw(st.lists(st.none() | cells_of(type_), min_size=count, max_size=count)))
        columns.append(array.dictionary_encode() if draw(st.integers(0, 9)) == 0 and can_encode(type_) else array)
    batch = pa.RecordBatch.from_arrays(columns, names=names)
    return batch.slice(draw(st.integers(0, 2))) if names else batch


def can_encode(type_: Any) -> bool:
    return not pa.types.is_nested(type_) and not pa.types.is_null(type_)


def check_batch(batch: Any) -> list[Item]:
    records = found(batch)
    items = [checked(record.item) for record in records]
    assert len(items) == batch.num_rows
    for line in (record.data for record in records if record.bad):
        assert line is not None
        assert not {b"\n", b"\r"} & {bytes([byte]) for byte in line}
        assert isinstance(parsed(line.decode()), dict)
    for at, item in enumerate(items):
        if not isinstance(item, BadRecord):
            assert item.id == batch.column("id")[at].as_py()
    return items


@fuzz(batches(), examples=300)
def test_any_arrow_batch_ends_as_items_one_for_each_row__D2(batch: Any) -> None:
    for at, item in enumerate(check_batch(batch)):
        if isinstance(item, Message) and "payload" in batch.schema.names:
            payload = batch.column("payload")[at]
            # The others are not asked for: pyarrow has no value in Python for some, as a time to the nanosecond.
            given_ = payload.as_py() if is_of_bytes(payload.type) else None
            if given_ is not None and not is_text(given_):
                assert item.payload == given_


def is_of_bytes(type_: Any) -> bool:
    of = type_.value_type if pa.types.is_dictionary(type_) else type_
    t = pa.types
    return bool(t.is_binary(of) or t.is_large_binary(of) or t.is_fixed_size_binary(of) or t.is_binary_view(of))


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def written(batch: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_batches([batch]), out, row_group_size=2, write_page_checksum=len(batch) % 2 == 0)
    return out.getvalue()


FILES = [
    written(pa.RecordBatch.from_pydict(columns))
    for columns in (
        {"id": ["a", "b", "c"], "due": [DUE_MS, 6, 7], "payload": ["1", None, "text"]},
        {
            "id": ["a", "b"],
            "key": ["k", None],
            "due": pa.array([5, 6], pa.timestamp("us", "UTC")),
            "x": [[1.5], [None]],
        },
        {"id": [f"m{at}" * 9 for at in range(40)], "due": [DUE_MS] * 40, "x": [{"a": at} for at in range(40)]},
    )
]


@fuzz(mutated(st.sampled_from(FILES)), examples=300)
def test_a_mutated_parquet_file_ends_as_items_with_growing_rows__D2(data: bytes) -> None:
    lines = []
    for record in rows_of_parquet(data):
        checked(record.item)
        lines.append(record.line)
        if len(lines) > 1000:  # a number of rows was hit
            break
    assert lines == sorted(set(lines))
    assert not lines or lines[0] == 1


def stream_of(batch: Any) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return out.getvalue()


@fuzz(mutated(batches().map(stream_of)), examples=200)
def test_a_mutated_arrow_stream_ends_as_items_or_is_refused_by_arrow__D12(data: bytes) -> None:
    try:
        received = list(pa.ipc.open_stream(data))
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):
        return
    for batch in received:
        if batch.num_rows > 10_000:
            continue
        for record in found_in(pieces(batch)):
            checked(record.item)
            assert record.bad is None or msgspec.json.decode(record.data or b"") is not None
