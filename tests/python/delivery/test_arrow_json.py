"""Arrow columns as JSON: every type, at every depth, and values without a form in JSON."""

import datetime as dt
import decimal
import json
from typing import Any

import pyarrow as pa
import pytest

from delivery.batches import batch, found, items, message, reason
from delivery.records import DUE_MS
from tickwheel.delivery.base.errors import BadRecord
from tickwheel.delivery.model.message import Message


def json_cells(array: Any) -> list[bytes | None]:
    """The JSON of each value, as the only member of a payload; none of a null."""
    kept = []
    for item in items(batch(id=["a"] * len(array), due=[DUE_MS] * len(array), v=array)):
        assert isinstance(item, Message), item
        payload = bytes(item.payload)
        kept.append(None if payload == b"{}" else payload.removeprefix(b'{"v":').removesuffix(b"}"))
    return kept


LEAVES = [
    (pa.array([True, None]), b"true"),
    (pa.array([-1, None], pa.int8()), b"-1"),
    (pa.array([2**64 - 1, None], pa.uint64()), b"18446744073709551615"),
    (pa.array([1.5, None], pa.float16()), b"1.5"),
    (pa.array(["é\n", None]), '"é\\n"'.encode()),
    (pa.array([b"\xff\x00", None]), b'"/wA="'),
    (pa.array([b"\xff\x00", None], pa.binary(2)), b'"/wA="'),
    (pa.array([decimal.Decimal("-1.50"), None]), b"-1.50"),
    (pa.array([decimal.Decimal("150E3"), None], pa.decimal128(10, -3)), b"150000"),
    (pa.array([decimal.Decimal("0.0000001"), None], pa.decimal256(40, 7)), b"0.0000001"),
    (pa.array([dt.date(2026, 1, 31), None]), b'"2026-01-31"'),
    (pa.array([dt.date(2026, 1, 31), None], pa.date64()), b'"2026-01-31"'),
    (pa.array([dt.time(8, 0, 1), None], pa.time64("us")), b'"08:00:01.000000"'),
    (pa.array([1, None], pa.timestamp("ns")), b'"1970-01-01T00:00:00.000000001"'),
    (pa.array([1, None], pa.timestamp("s", "Europe/Berlin")), b'"1970-01-01T00:00:01Z"'),
    (pa.array([1, None], pa.timestamp("s", "Mars/Phobos")), b'"1970-01-01T00:00:01Z"'),
    (pa.array(["a", None]).dictionary_encode(), b'"a"'),
    (pa.array(["[1]", None], pa.json_()), b'"[1]"'),
    (pa.RunEndEncodedArray.from_arrays([1, 2], pa.array(["a", None])), b'"a"'),
    (pa.array([{"a": 1, "b": None}, None]), b'{"a":1,"b":null}'),
    (pa.array([{}, None], pa.struct([])), b"{}"),
    (pa.array([[1, None, 2], None]), b"[1,null,2]"),
    (pa.array([[], None], pa.large_list(pa.int8())), b"[]"),
    (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), b"[1,2]"),
    (pa.array([[1, 2], None], pa.list_view(pa.int8())), b"[1,2]"),
    (pa.array([[("a", 1), ("b", None)], None], pa.map_(pa.string(), pa.int8())), b'{"a":1,"b":null}'),
]


@pytest.mark.parametrize(
    ("array", "text"), LEAVES, ids=lambda value: str(value.type) if isinstance(value, pa.Array) else ""
)
def test_values_have_a_form_in_json_wherever_they_stand__D1(array: Any, text: bytes) -> None:
    assert json_cells(array) == [text, None]
    assert json_cells(array.slice(1)) == [None]
    if text != b'"[1]"':  # pyarrow makes no struct of an extension by from_arrays and back
        struct = pa.StructArray.from_arrays([array, array], names=["x", "y"])
        assert json_cells(struct) == [b'{"x":' + text + b',"y":' + text + b"}", b'{"x":null,"y":null}']
        assert json_cells(struct.slice(1)) == [b'{"x":null,"y":null}']
    lists = pa.ListArray.from_arrays([0, 1, 1, 2], array)
    assert json_cells(lists) == [b"[" + text + b"]", b"[]", b"[null]"]
    assert json_cells(lists.slice(1)) == [b"[]", b"[null]"]
    maps = pa.MapArray.from_arrays([0, 0, 1, 2], pa.array(["a", "b"]), array)
    assert json_cells(maps) == [b"{}", b'{"a":' + text + b"}", b'{"b":null}']
    assert json_cells(maps.slice(2)) == [b'{"b":null}']
    assert bytes(message(x=array.slice(0, 1)).payload) == b'{"x":' + text + b"}"
    assert json.loads(text) is not ...


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ([float("nan")], "nan is not finite"),
        ([float("-inf")], "-inf is not finite"),
        (pa.array([5], pa.duration("ms")), "a duration[ms] has no form in it"),
        (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), "a month_day_nano_interval has no form in it"),
        (pa.array([2**62], pa.timestamp("s")), "a time out of range"),
        (pa.array([2**62], pa.timestamp("s", "UTC")), "a time out of range"),
        (pa.array([-(2**62)], pa.timestamp("us", "UTC")), "a time out of range"),
        (pa.array([2**31 - 1], pa.int32()).cast(pa.date32()), "a time out of range"),
        (pa.array([[{"x": float("nan")}]]), "nan is not finite"),
        (pa.array([[(1, 2)]], pa.map_(pa.int8(), pa.int8())), "a map has a key that is not text"),
        (pa.array([[("a", 2), ("a", 3)]], pa.map_(pa.string(), pa.int8())), "a name occurs twice in it"),
        (pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"]), "a name occurs twice in it"),
        (
            pa.ListArray.from_arrays(pa.array([0, 2**31 - 2], pa.int32()), pa.nulls(2**31 - 2)),
            "more than 1,048,576 items",
        ),
    ],
)
def test_what_has_no_form_in_json_is_a_bad_record__D2(cells: Any, why: str) -> None:
    told = reason(x=cells)
    assert told.startswith("x can't be JSON: ")
    assert why in told
    assert why in reason(payload=cells)


def test_a_variant_is_refused_and_its_remedy_named__D2() -> None:
    kind = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    variants = pa.array([{"metadata": b"\x01\x00\x00", "value": b"\x0c\x05"}], kind)
    assert reason(x=variants) == "x can't be JSON: it is a VARIANT, so write it to the file as JSON in text"
    assert "it is a VARIANT" in reason(x=pa.array([[variants[0].as_py()]], pa.list_(kind)))
    for metadata in (b"\x01\x01\x00\x01a", b"\x41\x01\x00\x00\x00\x01\x00a"):
        assert "it is a VARIANT" in reason(x=pa.array([{"metadata": metadata, "value": b"\x0c\x05"}], kind))
    for metadata in (b"application/json", b"a", b"\x01", b"\x01\xff\xff", b"1.0", b""):
        message(x=pa.array([{"metadata": metadata, "value": b"\x0c\x05"}], kind))
    others = pa.array([{"metadata": b"of mine", "value": b"\x0c\x05"}], kind)
    assert bytes(message(x=others).payload) == b'{"x":{"metadata":"b2YgbWluZQ==","value":"DAU="}}'


UUID = "0188a5eb-8f3c-7c1a-9d2e-3f4a5b6c7d8e"


def test_a_column_of_uuids_is_their_text__D1() -> None:
    uuids = pa.array([bytes.fromhex(UUID.replace("-", ""))], pa.uuid())
    read = message(id=uuids, key=uuids, x=uuids)
    assert (read.id, read.key, bytes(read.payload)) == (UUID, UUID, b'{"x":"%s"}' % UUID.encode())
    assert bytes(message(payload=uuids).payload) == b'"%s"' % UUID.encode()


@pytest.mark.parametrize(
    ("array", "shown"),
    [
        (pa.array([90], pa.duration("s")), "90 s"),
        (pa.array([-5], pa.duration("ns")), "-5 ns"),
        (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), "1 months 2 days 3 ns"),
    ],
)
def test_the_dead_letter_of_a_duration_has_its_value__D2(array: Any, shown: str) -> None:
    [letter] = found(batch(id=["a"], due=[DUE_MS], x=array))
    assert letter.data is not None
    assert json.loads(letter.data)["x"] == shown


def test_one_value_without_a_form_costs_its_row_only__D2() -> None:
    first, second, third = items(batch(id=["a", "b", "c"], due=[DUE_MS] * 3, x=[1.5, float("nan"), None]))
    assert isinstance(first, Message)
    assert isinstance(second, BadRecord)
    assert isinstance(third, Message)
    huge = pa.ListArray.from_arrays([0, 1, 1_200_000, 1_200_001], pa.nulls(1_200_001))
    kinds = [type(item) for item in items(batch(id=["a", "b", "c"], due=[DUE_MS] * 3, x=huge))]
    assert kinds == [Message, BadRecord, Message]
