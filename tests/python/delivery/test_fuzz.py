"""The parsers of text with random and mutated input: the results are only messages, cancels and bad records."""

import contextlib
import csv
import io
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from delivery.fuzzing import MILLISECONDS, NAMES, NOW_NS, checked, fuzz, mutated, parsed, timed
from delivery.records import Found, Item, read_csv, read_ndjson
from tickwheel._native import due_of
from tickwheel.delivery.base.errors import BadRecord
from tickwheel.delivery.model.message import Message

pytestmark = timed


def lines_of(data: bytes) -> list[bytes]:
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return lines if lines[-1] else lines[:-1]


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=10)
    | st.sampled_from(
        [
            "cancel",
            "AA==",
            "2026-01-31T08:00:00Z",
            "2026-01-31T08:00:00.0001+01:00",
            5,
            1.5,
            "a",
            "k",
            1_700_000_000_005,
        ]
    )
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
near_misses = st.dictionaries(st.sampled_from(NAMES), values, max_size=6)
good = st.fixed_dictionaries(
    {"id": st.text(min_size=1, max_size=8), "due": MILLISECONDS},
    optional={"key": st.text(min_size=1, max_size=8), "payload": values},
)
json_lines = st.builds(
    lambda record, ascii_: json.dumps(record, ensure_ascii=ascii_).encode(errors="surrogatepass"),
    near_misses | good,
    st.booleans(),
)


def check_ndjson(data: bytes) -> list[Item]:
    records = read_ndjson(data, now_ns=NOW_NS)
    lines = lines_of(data)
    assert [(record.line, record.data) for record in records] == [
        (number, line.strip(b" \t\r")) for number, line in enumerate(lines, 1) if line.strip(b" \t\r")
    ]
    items = [checked(record.item) for record in records]
    for record, item in zip(records, items, strict=True):
        assert record.data is not None
        given_ = {} if isinstance(item, BadRecord) else parsed(record.data.decode())
        if not isinstance(item, BadRecord):
            assert given_["id"] == item.id
        if isinstance(item, Message) and given_.get("payload") is not None:
            assert bytes(item.payload) in record.data.replace(b"\r", b" ")
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
    if record.get("payload") is None:
        assert bytes(item.payload) == b"{}", "null is not there"
    else:
        assert bytes(item.payload) == json.dumps(record["payload"]).encode()


def check_csv(data: bytes) -> list[Item]:
    records = read_csv(data, now_ns=NOW_NS)
    lines = lines_of(data)
    taken: dict[int, Found] = {}
    for record in records:
        assert record.data is not None
        count = record.data.count(b"\n") + 1
        assert record.data == b"\n".join(lines[record.line - 1 : record.line - 1 + count]).rstrip(b"\r\n")
        for number in range(record.line, record.line + count):
            assert number not in taken, "a line belongs to one record"
            taken[number] = record
    items = [checked(record.item) for record in records]
    left = [number for number, line in enumerate(lines, 1) if line.strip(b"\r") and number not in taken]
    if len(items) == 1 and isinstance(items[0], BadRecord) and "header" in items[0].reason:
        assert not any(line.strip(b"\r") for line in lines[: records[0].line - 1])  # nothing below it is read
    elif left:  # it is the header, which may span lines
        header = b"\n".join(lines[left[0] - 1 : left[-1]])
        assert left[0] == min(number for number, line in enumerate(lines, 1) if line.strip(b"\r"))
        assert any(csv.reader(io.StringIO(header.decode(), newline="")))
    return items


cells = st.text(st.sampled_from('ab5,"\r\n- é\x00'), max_size=12)
raw_rows = st.lists(cells, max_size=8).map("\n".join).map(str.encode)
headers = st.sampled_from([b"id,due\n", b"id,due,payload\n", b"id,delay_ms,op,x\n", b'"id","du\ne"\n', b""])
csv_bytes = st.builds(lambda header, body: header + body, headers, raw_rows | st.binary(max_size=300))


@fuzz(csv_bytes | mutated(csv_bytes), examples=400)
def test_any_bytes_as_csv_end_as_items_and_each_line_counts__D2(data: bytes) -> None:
    check_csv(data)


@fuzz(
    st.lists(st.tuples(st.text(min_size=1, max_size=8), MILLISECONDS, st.text(max_size=12)), max_size=5),
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
        due_ms = due_of(text, "due")
    except BadRecord:
        assert not is_real
        return
    at = datetime.fromisoformat(text.upper())
    assert due_ms - -((EPOCH - at) // timedelta(milliseconds=1)) in ((0,) if is_real else (0, 1))  # beyond microseconds
