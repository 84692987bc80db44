"""Rows of Arrow batches as messages: every type of a column, and errors in a row, a column or a batch."""

import datetime as dt
import decimal
import io
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delivery.batches import (
    MESSAGE_SCHEMA,
    batch,
    found,
    invalid_utf8,
    items,
    message,
    payload,
    pieces,
    reason,
    to_arrow,
)
from delivery.records import DUE_MS, found_in
from tickwheel._native import MAX_DUE_MS, ArrowRows
from tickwheel.delivery.base.errors import BadRecord
from tickwheel.delivery.model.message import MAX_PAYLOAD, MAX_RECORD, Cancel, Columns, Message
from tickwheel.delivery.read.arrow import check_names, read_batch


def test_a_row_is_a_message_and_a_null_is_absent__D1() -> None:
    given_ = batch(
        id=["a", "b", "c"],
        key=["k", None, None],
        due=pa.array([5, 6, None], pa.timestamp("ms", "UTC")),
        delay_ms=pa.array([None, None, 1.5]),
        op=pa.array([None, None, None]),
        payload=['{"x":  1.50}', None, "text"],
    )
    assert items(given_) == [
        Message("a", "k", 5, msgspec.Raw(b'{"x":  1.50}')),
        Message("b", None, 6, msgspec.Raw(b"{}")),
        Message("c", None, 2, msgspec.Raw(b'"text"'), 1.5),
    ]


def test_a_table_reads_as_its_batches_do__D1() -> None:
    one = batch(id=["a", "b"], due=[DUE_MS, DUE_MS + 1])
    table = pa.Table.from_batches([one, one.slice(1), one.slice(2)])
    assert [item.id for item in items(table) if isinstance(item, Message)] == ["a", "b", "b"]
    assert items(table.slice(1)) == [items(one)[1]] * 2


def test_the_caller_may_name_the_columns__D11() -> None:
    columns = Columns(id="flight", key="tail", due="at", payload="body")
    given_ = batch(flight=["a"], tail=["t"], at=[DUE_MS], body=["1"])
    assert items(given_, columns) == [Message("a", "t", DUE_MS, msgspec.Raw(b"1"))]


@pytest.mark.parametrize(
    "type_", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.large_string())]
)
def test_text_of_any_type_is_text__D1(type_: Any) -> None:
    texts = pa.array(["é", None, "", "b", "é"]).cast(type_)
    assert [
        item.reason if isinstance(item, BadRecord) else item.id for item in items(batch(id=texts, due=[DUE_MS] * 5))
    ] == [
        "é",
        "id is missing",
        "id is empty",
        "b",
        "é",
    ]
    keyed = items(batch(id=["a", "b"], key=texts.slice(0, 2), due=[DUE_MS, DUE_MS]))
    assert [item.key for item in keyed if isinstance(item, Message)] == ["é", None]
    assert message(due=pa.array(["1970-01-01T00:00:00.005Z"]).cast(type_)).due_ms == 5
    assert payload(pa.array(["[1]"]).cast(type_)) == b"[1]"


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([7]),
        pa.array([1.5]),
        pa.array([b"a"]),
        pa.array([True]),
        pa.array([5], pa.duration("ms")),
        pa.array([dt.date(2026, 1, 1)]),
        pa.array([["a"]]),
        pa.array([b"1" * 16], pa.binary(16)),
    ],
)
def test_an_id_or_key_that_is_not_text_is_a_bad_record_and_not_made_text__D2(cells: Any) -> None:
    assert reason(id=cells) == "id is not text"
    assert reason(key=cells) == "key is not text"
    assert reason(payload_base64=cells) == "payload_base64 is not base64"
    assert reason(op=cells) == "op is not known"


@pytest.mark.parametrize("name", ["id", "key", "op", "due", "payload_base64", "x"])
def test_text_that_is_not_utf8_costs_its_row_only__D2(name: str) -> None:
    for cells in (
        invalid_utf8(b"\xff", None, b"\xc3\xa9"),
        invalid_utf8(b"\xff", None, b"\xc3\xa9").dictionary_encode(),
    ):
        given_ = batch(**{"id": ["a", "b", "c"], "due": [DUE_MS] * 3} | {name: cells})
        first, *others = items(given_)
        assert isinstance(first, BadRecord)
        assert first.reason == f"{name} is not UTF-8"
        assert not any(isinstance(item, BadRecord) and "UTF-8" in item.reason for item in others)
        assert data(given_)[0] is not None


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "+01:30", "Mars/Phobos"])
@pytest.mark.parametrize(
    ("unit", "instant", "due_ms"),
    [
        ("s", 5, 5000),
        ("ms", 5, 5),
        ("us", 5000, 5),
        ("us", 5001, 6),
        ("ns", 5_000_000, 5),
        ("ns", 5_000_001, 6),
        ("ns", 0, 0),
        ("us", MAX_DUE_MS * 1000, MAX_DUE_MS),
    ],
)
def test_a_timestamp_is_an_instant_rounded_up_to_the_millisecond__D3(
    unit: str, zone: str, instant: int, due_ms: int
) -> None:
    assert message(due=pa.array([instant], pa.timestamp(unit, zone))).due_ms == due_ms


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        (pa.array([0], pa.timestamp("us")), "due has no zone: '1970-01-01T00:00:00.000000'"),
        (pa.array([2**62], pa.timestamp("s")), "due is not a time"),
        (pa.array([2**62], pa.timestamp("s", "UTC")), "due is out of range"),
        (pa.array([-(2**63)], pa.timestamp("ns", "UTC")), "due is out of range"),
        (pa.array([MAX_DUE_MS * 1000 + 1], pa.timestamp("us", "UTC")), "due is out of range"),
        (pa.array([-1]), "due is out of range"),
        (pa.array([MAX_DUE_MS + 1]), "due is 253402300800000, which looks like microseconds"),
        (pa.array([2**64 - 1], pa.uint64()), "which looks like nanoseconds"),
        (pa.array([5.0]), "due is 5, which looks like seconds"),
        (pa.array([True]), "due is neither"),
        (pa.array([b"5"]), "due is neither"),
        (pa.array([dt.date(2026, 1, 1)]), "due is a date without a time of day: '2026-01-01'"),
        (pa.array([decimal.Decimal(5)]), "due is 5, which looks like seconds"),
        (pa.array([1_790_000_000]), "due is 1790000000, which looks like seconds"),
        (pa.array([5], pa.int8()), "due is 5, which looks like seconds"),
        (pa.array(["1790000000"]), "due is 1790000000, which looks like seconds"),
        (pa.array(["soon"]), "due is not a time"),
        (pa.array(["2026-01-31T08:00:00"]), "due has no zone"),
        (pa.array(["9" * 31]), "due is out of range"),
        (pa.nulls(1), "due is missing"),
    ],
)
def test_any_other_due_time_says_why__D2(cells: Any, why: str) -> None:
    assert why in reason(due=cells)


def test_a_due_time_without_a_zone_is_wrong_with_each_row_that_has_one__D2() -> None:
    given_ = batch(id=["a", "b", "c"], due=pa.array([5, None, 6], pa.timestamp("ms")), delay_ms=[None, 1, None])
    first, second, third = items(given_)
    assert isinstance(first, BadRecord)
    assert isinstance(second, Message)
    assert isinstance(third, BadRecord)


@pytest.mark.parametrize("type_", [pa.int64(), pa.uint64()])
def test_integers_and_digits_are_epoch_milliseconds__D1(type_: Any) -> None:
    assert message(due=pa.array([DUE_MS], type_)).due_ms == DUE_MS
    assert message(due=[str(DUE_MS)]).due_ms == DUE_MS
    assert message(due=pa.array([DUE_MS]).dictionary_encode()).due_ms == DUE_MS
    assert message(due=pa.array([5001], pa.timestamp("us", "UTC")).dictionary_encode()).due_ms == 6


def test_a_delay_is_a_number__D1() -> None:
    nothing = pa.nulls(1)
    assert message(due=nothing, delay_ms=[5]).delay_ms == 5
    assert message(due=nothing, delay_ms=pa.array([1.5], pa.float32())).due_ms == 2
    for cells in (
        ["5"],
        [True],
        [float("nan")],
        [float("inf")],
        pa.array([5], pa.duration("ms")),
    ):
        assert reason(due=nothing, delay_ms=cells) == "delay_ms is not a number in range"


def test_a_cancel_has_id_and_key_and_nulls_elsewhere__D7() -> None:
    given_ = batch(id=["a", "b"], key=["k", None], due=pa.nulls(2), op=["cancel", "cancel"], x=[None, 1])
    cancel, bad = items(given_)
    assert cancel == Cancel("a", "k")
    assert isinstance(bad, BadRecord)
    assert bad.reason == "a cancel has more than id and key"


@pytest.mark.parametrize("type_", [pa.string(), pa.binary(), pa.large_binary(), pa.binary_view()])
@pytest.mark.parametrize(
    ("cell", "kept"),
    [
        (b'{"b" : 1,  "a":{}}', b'{"b" : 1,  "a":{}}'),
        (b" 1.50 ", b"1.50"),
        (b"12345678901234567890123", b"12345678901234567890123"),
        (b'"\\u00e9"', b'"\\u00e9"'),
        ("é".encode(), '"é"'.encode()),
        (b"NaN", b'"NaN"'),
        (b"", b'""'),
        (b"[1,\r\n2]", b"[1,  2]"),
        (b"two\r\nlines", b'"two\\r\\nlines"'),
    ],
)
def test_json_stays_as_it_is_on_one_line_and_other_text_is_a_string__D1(type_: Any, cell: bytes, kept: bytes) -> None:
    assert payload(pa.array([cell]).cast(type_)) == kept
    assert payload(pa.array([cell]).cast(type_).dictionary_encode() if type_ != pa.binary_view() else [cell]) == kept


@pytest.mark.parametrize(
    "cells", [pa.array([b"\xff\x00"]), pa.array([b"\xff\x00"], pa.binary(2)), invalid_utf8(b"\xff\x00")]
)
def test_other_bytes_stay_bytes__D1(cells: Any) -> None:
    assert message(payload=cells).payload == b"\xff\x00"


def test_a_payload_may_be_nested_too_deep__D2() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    assert reason(payload=[deep]) == "payload can't be JSON: the JSON is nested too deep"


def test_without_a_payload_column_the_other_columns_are_the_payload__D1() -> None:
    given_ = batch(id=["a", "b"], due=[DUE_MS, DUE_MS], x=["1.50", None], y=[1.5, None], z=[[1, None], None])
    first, second = items(given_)
    assert isinstance(first, Message)
    assert isinstance(second, Message)
    assert bytes(first.payload) == b'{"x":"1.50","y":1.5,"z":[1,null]}'
    assert bytes(second.payload) == b"{}"
    assert reason(payload=["1"], x=["2"]) == "fields beside the payload: x"
    assert message(payload=["1"], x=pa.nulls(1)).payload == msgspec.Raw(b"1")


@pytest.mark.parametrize(
    ("given_", "columns", "why"),
    [
        (batch(name=["a", "b"], due=[DUE_MS, DUE_MS + 1]), Columns(), "the schema has no column id"),
        (batch(id=["a", "b"], due=[DUE_MS, DUE_MS + 1]), Columns(payload="body"), "the schema has no column body"),
        (
            pa.RecordBatch.from_arrays([pa.array(["a", "b"])] * 2 + [pa.array([1, 2])], names=["id", "id", "due"]),
            Columns(),
            "the schema names a column twice",
        ),
        (pa.RecordBatch.from_arrays([pa.array(["a", "b"])] * 2, names=["id", ""]), Columns(key="x"), "no column x"),
    ],
)
def test_with_a_schema_that_can_not_be_used_every_row_says_so__D2(given_: Any, columns: Columns, why: str) -> None:
    found = items(given_, columns)
    assert len(found) == 2
    assert all(isinstance(item, BadRecord) and why in item.reason and item.allowed for item in found)


def test_a_name_that_is_not_utf8_is_wrong_with_every_row__D2() -> None:
    def received(given_: Any) -> Any:
        with pa.ipc.new_stream(out := io.BytesIO(), given_.schema) as writer:
            writer.write_batch(given_)
        return pa.ipc.open_stream(out.getvalue().replace(b"name", b"na\xffe")).read_next_batch()

    why = "the schema has a name that is not UTF-8"
    reasons = [each.bad.reason for each in found(received(batch(id=["a", "b"], name=["x", "y"]))) if each.bad]
    assert reasons == [why] * 2
    inside = items(received(batch(id=["a", "b"], due=[DUE_MS] * 2, x=[{"name": 1}, None])))
    assert all(isinstance(item, BadRecord) and "the batch is broken" in item.reason for item in inside)
    with pytest.raises(BadRecord, match=why):
        check_names(ArrowRows("rows", Columns(), MAX_PAYLOAD), received(batch(name=["x"])).schema)


def test_a_batch_that_is_broken_is_not_read__D2() -> None:
    offsets = pa.array([0, 10**9, 2], pa.int32()).buffers()[1]
    broken = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"ab")])
    records = found(batch(id=["a", "b"], due=[DUE_MS, DUE_MS + 1], x=broken))
    assert all(each.bad and "the batch is broken" in each.bad.reason for each in records)
    assert [each.bad is None for each in found(batch(id=broken))] == [False, False]
    places = pa.DictionaryArray.from_arrays(pa.array([0, 7], pa.int8()), pa.array(["a"]), safe=False)
    both = items(pa.Table.from_batches([batch(id=["a", "b"], due=[DUE_MS, DUE_MS + 1], key=places)] * 2))
    assert len(both) == 4
    assert all(isinstance(item, BadRecord) and "the batch is broken" in item.reason for item in both)


def test_what_is_broken_in_one_batch_is_not_held_against_the_next__D2() -> None:
    places = pa.DictionaryArray.from_arrays(pa.array([7], pa.int8()), pa.array(["k"]), safe=False)
    good = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array(["k"]))
    table = pa.Table.from_batches([batch(id=["a"], due=[DUE_MS], key=places), batch(id=["b"], due=[DUE_MS], key=good)])
    assert [type(item) for item in items(table)] == [BadRecord, Message]


def test_a_batch_is_read_in_pieces_that_are_bounded__D12() -> None:
    def sizes(given_: Any) -> list[int]:
        return [len(records) for records in pieces(given_)]

    many = batch(id=[f"{at}" for at in range(3000)], due=[DUE_MS] * 3000)
    assert sizes(many) == [1024, 1024, 952]
    large = batch(id=["a"] * 12, due=[DUE_MS] * 12, payload=["x" * (MAX_PAYLOAD - 2)] * 12)
    assert max(sizes(large)) <= 4
    assert sum(sizes(large)) == 12
    nothing = pa.RecordBatch.from_arrays([pa.nulls(10**9)], names=["id"])
    assert len(next(pieces(nothing))) == 1024
    assert sizes(batch(id=pa.array([], pa.string()), due=pa.array([], pa.int64()))) == []


def test_a_repeated_value_of_a_dictionary_is_not_in_memory_a_thousand_times__D12() -> None:
    given_ = batch(
        id=[f"{at}" for at in range(1000)],
        due=[DUE_MS] * 1000,
        key=pa.DictionaryArray.from_arrays(pa.array([0] * 1000), pa.array(["x" * 100_000, "unused"])),
    )
    sizes = [len(records) for records in pieces(given_)]
    assert max(sizes) <= 42
    assert sum(sizes) == 1000


def data(given_: Any, columns: Columns | None = None) -> list[bytes | None]:
    """The records of bad rows as their letters show them."""
    return [each.data for each in found(given_, columns) if each.bad]


def test_a_dead_letter_shows_the_row_as_a_line_of_json__D2() -> None:
    given_ = batch(
        id=["a", None],
        due=pa.array([5001, None], pa.timestamp("us", "UTC")),
        payload=pa.array([b"\xff", b'{"x": 1.50}']),
        x=[float("nan"), None],
    )
    shown = b'{"id":"a","due":"1970-01-01T00:00:00.005001Z","payload_base64":"/w==","x":"nan"}'
    assert data(given_) == [shown, b'{"payload":{"x": 1.50}}']
    twice = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array([[1]])], names=["x", "x"])
    assert data(twice) == [b'{"x":"a","x again":[1]}']


def test_a_dead_letter_of_a_huge_row_is_cut__D12() -> None:
    [shown] = data(batch(id=["a"], due=[DUE_MS], payload=["é" * MAX_RECORD]))
    assert shown is not None
    assert len(shown) in (1023, 1024)
    assert shown.decode().startswith(f'{{"id":"a","due":{DUE_MS},"payload":"éé')
    assert "has" in reason(payload=["x" * (MAX_PAYLOAD + 1)])


def test_rows_without_an_order_have_no_line__S1() -> None:
    rows = ArrowRows("rows", Columns(), MAX_PAYLOAD)
    given_ = batch(id=["a"] * 1500, due=[DUE_MS] * 1500)
    assert {each.line for each in found_in(read_batch(rows, given_, first_line=0))} == {0}
    assert [each.line for each in found_in(read_batch(rows, given_, first_line=7))] == [*range(7, 1507)]


raws = st.sampled_from([b"1", b'{"a": 1.50}', b'"text"', b"[]"]).map(msgspec.Raw)
messages = st.builds(
    Message,
    id=st.text(min_size=1),
    key=st.none() | st.text(min_size=1),
    due_ms=st.integers(0, MAX_DUE_MS),  # a timestamp, which says what it is
    payload=raws | st.binary() | st.sampled_from([b"1", b"text"]),
)
delayed = st.builds(
    lambda message, delay_ms: msgspec.structs.replace(message, due_ms=delay_ms, delay_ms=delay_ms),
    messages,
    st.integers(0, 10**9),
)
cancels = st.builds(Cancel, id=st.text(min_size=1), key=st.none() | st.text(min_size=1))


@given(st.lists(messages | delayed | cancels))
def test_what_is_written_in_the_schema_reads_back_the_same__D1(given_: list[Message | Cancel]) -> None:
    written = to_arrow(given_)
    assert written.schema == MESSAGE_SCHEMA
    written.validate(full=True)
    assert items(written) == given_


def test_offsets_of_a_length_that_arrow_forbids_are_a_fault_and_no_panic__D2() -> None:
    crooked = pa.Array.from_buffers(pa.string(), 0, [None, pa.py_buffer(bytes(5)), pa.py_buffer(b"")])
    crooked.validate(full=True)  # pyarrow lets it pass
    assert list(pieces(pa.RecordBatch.from_arrays([crooked] * 2, names=["id", "payload"]))) == []
    lists = pa.ListArray.from_arrays([0, 0], crooked)
    (row,) = found(batch(id=["a"], due=[DUE_MS], x=lists))
    assert row.bad is not None
    assert row.bad.reason.startswith("the batch is broken")
