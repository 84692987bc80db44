"""The parsers under random and mutated input: nothing but a message, a cancel or a bad record ever comes out.

By default each property takes a few seconds. `TICKWHEEL_FUZZ_SECONDS=60` goes on for so long in total, each round with
another seed; a failure names its seed, and `TICKWHEEL_FUZZ_SEED=N` starts from it again.
"""

import contextlib
import csv
import io
import json
import os
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tickwheel.delivery.arrow_rows import read_rows
from tickwheel.delivery.csv_rows import read_csv
from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.message import Cancel, Columns, Fields, Message, check
from tickwheel.delivery.ndjson import read_ndjson
from tickwheel.delivery.parquet import read_parquet
from tickwheel.delivery.record import Record
from tickwheel.delivery.times import MAX_DUE_MS, due_from, rfc_3339

SECONDS = float(os.environ.get("TICKWHEEL_FUZZ_SECONDS", "0"))
PROPERTIES = 9
SEED = os.environ.get("TICKWHEEL_FUZZ_SEED")

pytestmark = pytest.mark.timeout(120 + SECONDS)

Item = Message | Cancel | BadRecord
COLUMNS = Columns()
NOW_NS = 1_700_000_000_000_000_000


def fuzz(*strategies: Any, examples: int = 200) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Makes a property a test that runs in rounds, each from a seed of its own, until its share of the time is over."""
    how = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
    )

    def decorate(holds: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            end = time.monotonic() + SECONDS / PROPERTIES
            number = int(SEED) if SEED else secrets.randbits(32)
            while True:
                try:
                    seed(number)(how(given(*strategies)(holds)))()
                except BaseException as error:
                    error.add_note(f"to see it again: TICKWHEEL_FUZZ_SEED={number}")
                    raise
                if time.monotonic() >= end:
                    return
                number = secrets.randbits(32)

        test.__name__ = holds.__name__
        return test

    return decorate


def mutated(valid: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Valid bytes with a few changes: cut, doubled, moved, replaced, flipped."""
    pieces = st.binary(max_size=4) | st.sampled_from(
        [b'"', b'""', b",", b"\n", b"\r", b"{", b"}", b"[", b"\\u", b"null"]
    )
    changes = st.tuples(st.integers(0, 10**6), st.integers(0, 12), st.sampled_from("cdmrf"), pieces)

    def change(data: bytes, edits: list[tuple[int, int, str, bytes]]) -> bytes:
        for place, length, kind, piece in edits:
            at = place % (len(data) + 1)
            before, part, after = data[:at], data[at : at + length], data[at + length :]
            data = {
                "c": before + after,
                "d": before + part + part + after,
                "m": part + before + after,
                "r": before + piece + after,
                "f": before + bytes(byte ^ (1 << place % 8) for byte in part[:1]) + part[1:] + after,
            }[kind]
        return data

    return st.builds(change, valid, st.lists(changes, min_size=1, max_size=4))


def item_of(content: Fields | BadRecord, columns: Columns = COLUMNS) -> Item:
    """What a record ends as; whatever it is, it is whole."""
    try:
        if isinstance(content, BadRecord):
            raise content
        item: Item = check(content, columns, NOW_NS)
    except BadRecord as bad:
        item = bad
    if isinstance(item, BadRecord):
        assert item.reason.strip()
        assert item.allowed.strip()
    else:
        assert item.id
        assert item.key != ""
        (item.id + (item.key or "")).encode()
    if isinstance(item, Message):
        assert 0 <= item.due_ms <= MAX_DUE_MS
        assert due_from(rfc_3339(item.due_ms), "due") == item.due_ms
        if not isinstance(item.payload, bytes):
            text = bytes(item.payload).decode()
            assert not {"\n", "\r"} & set(text)
            parsed(text)
    return item


def parsed(text: str) -> Any:
    """JSON as the standard library reads it, but strictly."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse, parse_int=str, parse_float=str)


def lines_of(data: bytes) -> list[bytes]:
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return lines if lines[-1] else lines[:-1]


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=10)
    | st.sampled_from(["cancel", "AA==", "2026-01-31T08:00:00Z", "2026-01-31T08:00:00.0001+01:00", 5, 1.5, "a", "k"])
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = ["id", "key", "due", "delay_ms", "op", "payload", "payload_base64", "x", "é"]
near_misses = st.dictionaries(st.sampled_from(NAMES), values, max_size=6)
good = st.fixed_dictionaries(
    {"id": st.text(min_size=1, max_size=8), "due": st.integers(0, MAX_DUE_MS)},
    optional={"key": st.text(min_size=1, max_size=8), "payload": values},
)
json_lines = st.builds(
    lambda record, ascii_: json.dumps(record, ensure_ascii=ascii_).encode(errors="surrogatepass"),
    near_misses | good,
    st.booleans(),
)


def check_ndjson(data: bytes) -> list[Item]:
    records = list(read_ndjson("fuzz", io.BytesIO(data), COLUMNS))
    lines = lines_of(data)
    assert [(record.line, record.data) for record in records] == [
        (number, line.strip(b" \t\r")) for number, line in enumerate(lines, 1) if line.strip(b" \t\r")
    ]
    items = [item_of(record.content) for record in records]
    for record, item in zip(records, items, strict=True):
        if not isinstance(item, BadRecord):
            assert parsed(record.data.decode())["id"] == item.id
        if isinstance(item, Message) and b'"payload"' in record.data and not isinstance(item.payload, bytes):
            assert bytes(item.payload) in record.data.replace(b"\r", b" ") or b'"payload"' in bytes(item.payload)
    return items


@fuzz(st.binary(max_size=300) | st.lists(json_lines | st.binary(max_size=40), max_size=5).map(b"\n".join))
def test_any_lines_of_json_or_bytes_end_as_items_and_each_line_counts__D2(data: bytes) -> None:
    check_ndjson(data)


@fuzz(mutated(json_lines), examples=400)
def test_a_mutated_object_ends_as_an_item_and_json_is_kept_byte_for_byte__D1(data: bytes) -> None:
    check_ndjson(data)


@fuzz(good)
def test_a_good_object_is_a_message_with_just_what_it_gave__D1(record: dict[str, Any]) -> None:
    line = json.dumps(record).encode()
    [item] = check_ndjson(line)
    if b"NaN" in line or b"Infinity" in line:
        return
    assert isinstance(item, Message), item
    assert (item.id, item.key, item.due_ms) == (record["id"], record.get("key"), record["due"])
    if "payload" in record:
        assert bytes(item.payload) == json.dumps(record["payload"]).encode()


def check_csv(data: bytes) -> list[Item]:
    records = list(read_csv("fuzz", io.BytesIO(data), COLUMNS))
    lines = lines_of(data)
    taken: dict[int, Record] = {}
    for record in records:
        count = record.data.count(b"\n") + 1
        assert record.data == b"\n".join(lines[record.line - 1 : record.line - 1 + count]).rstrip(b"\r\n")
        for number in range(record.line, record.line + count):
            assert number not in taken, "a line belongs to one record"
            taken[number] = record
    left = [number for number, line in enumerate(lines, 1) if line.strip(b"\r") and number not in taken]
    if left:  # it is the header, which may run over lines
        header = b"\n".join(lines[left[0] - 1 : left[-1]])
        assert left[0] == min(number for number, line in enumerate(lines, 1) if line.strip(b"\r"))
        assert len(next(csv.reader(io.StringIO(header.decode(), newline="")))) >= 1
    return [item_of(record.content) for record in records]


cells = st.text(st.sampled_from('ab5,"\r\n- é\x00'), max_size=12)
raw_rows = st.lists(cells, max_size=8).map("\n".join).map(str.encode)
headers = st.sampled_from([b"id,due\n", b"id,due,payload\n", b"id,delay_ms,op,x\n", b'"id","du\ne"\n', b""])
csv_bytes = st.builds(lambda header, body: header + body, headers, raw_rows | st.binary(max_size=300))


@fuzz(csv_bytes | mutated(csv_bytes), examples=400)
def test_any_bytes_as_csv_end_as_items_and_each_line_counts__D2(data: bytes) -> None:
    check_csv(data)


@fuzz(
    st.lists(st.tuples(st.text(min_size=1, max_size=8), st.integers(0, MAX_DUE_MS), st.text(max_size=12)), max_size=5),
    st.sampled_from(["\n", "\r\n"]),
)
def test_what_a_csv_writer_wrote_reads_back_the_same__D1(rows: list[tuple[str, int, str]], end: str) -> None:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerow(["id", "due", "x"])
    writer.writerows(rows)
    with contextlib.suppress(UnicodeEncodeError):
        items = check_csv(out.getvalue().encode())
        assert [(item.id, item.due_ms, parsed(bytes(item.payload).decode())["x"]) for item in items] == rows  # type: ignore[union-attr]


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
like_times = st.from_regex(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,12})?([Zz]|[+-]\d\d:\d\d)?", fullmatch=True)
zones = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(
    lambda by: timezone(by - by % timedelta(minutes=1))
)
real_times = st.datetimes(EPOCH.replace(year=1971, tzinfo=None), EPOCH.replace(year=9998, tzinfo=None), timezones=zones)


@fuzz((like_times | st.text(max_size=30)).map(lambda text: (text, False)) | real_times.map(lambda at: (str(at), True)))
def test_a_time_is_what_the_standard_library_makes_of_it_rounded_up__D3(given_: tuple[str, bool]) -> None:
    text, is_real = given_
    try:
        due_ms = due_from(text, "due")
    except BadRecord:
        assert not is_real
        return
    at = datetime.fromisoformat(text.upper())
    assert due_ms - -((EPOCH - at) // timedelta(milliseconds=1)) in ((0,) if is_real else (0, 1))  # beyond microseconds


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
    items: list[Item] = []
    shown: list[bytes] = []
    for rows in read_rows(batch, COLUMNS):
        items += [item_of(content) for content in rows.contents]
        shown += [rows.data(at) for at in range(len(rows.contents))]
    assert len(items) == batch.num_rows
    for line in shown:
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
            given_ = batch.column("payload")[at].as_py()
            if isinstance(given_, bytes) and not is_text(given_):
                assert item.payload == given_


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
        {"id": ["a", "b", "c"], "due": [5, 6, 7], "payload": ["1", None, "text"]},
        {
            "id": ["a", "b"],
            "key": ["k", None],
            "due": pa.array([5, 6], pa.timestamp("us", "UTC")),
            "x": [[1.5], [None]],
        },
        {"id": [f"m{at}" * 9 for at in range(40)], "due": [5] * 40, "x": [{"a": at} for at in range(40)]},
    )
]


@fuzz(mutated(st.sampled_from(FILES)), examples=300)
def test_a_mutated_parquet_file_ends_as_items_with_growing_rows__D2(data: bytes) -> None:
    lines = []
    for record in read_parquet("fuzz", io.BytesIO(data), COLUMNS):
        item_of(record.content)
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
        found = list(pa.ipc.open_stream(data))
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):
        return
    for batch in found:
        if batch.num_rows > 10_000:
            continue
        for rows in read_rows(batch, COLUMNS):
            for at, content in enumerate(rows.contents):
                item_of(content)
                assert msgspec.json.decode(rows.data(at)) is not None
