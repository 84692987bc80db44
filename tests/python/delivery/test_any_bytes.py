"""Any input ends as messages, cancels, or dead letters with a reason, and every record is accounted for."""

import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delivery.records import Found, read_csv, read_ndjson
from tickwheel.delivery import Letter, Message
from tickwheel.delivery.observe import dead_letters
from tickwheel.delivery.sinks import Delivery

Reader = Callable[[bytes], list[Found]]

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["cancel", "AA==", "2026-01-31T08:00:00Z"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(["id", "key", "due", "delay_ms", "op", "payload", "payload_base64", "x"])
near_misses = st.dictionaries(names, values, max_size=5).map(lambda value: json.dumps(value).encode())
ndjson = st.lists(near_misses | st.binary(max_size=40), max_size=4).map(b"\n".join) | st.binary(max_size=200)
cells = st.text(st.sampled_from('ab5,"\r\n- é'), max_size=12).map(str.encode)
rows = st.lists(cells, max_size=5).map(b"\n".join)
csvs = st.sampled_from([b"", b"id,due\n", b"id,due,payload\n", b"id,delay_ms,op,x\n"]).flatmap(
    lambda header: (rows | st.binary(max_size=200)).map(lambda body: header + body)
)


quietly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the first text draws are slow


def outcomes(reader: Reader, data: bytes) -> list[Found]:
    records = reader(data)
    for record in records:
        bad, item = record.bad, record.item
        if bad is not None:
            assert record.data is not None
            letter = Letter(record.source, record.line, bad.reason, bad.allowed, record.data)
            written = json.loads(dead_letters.line_of(letter))
            assert written["reason"]
            assert written["allowed"]
            assert written["line"] == record.line
        elif isinstance(item, Message):
            line = Delivery(1, item, 0, 0).line
            assert line.count(b"\n") == 1
            assert b"\r" not in line
            assert json.loads(line)["id"] == item.id
    return records


@quietly
@given(ndjson)
def test_any_bytes_as_ndjson_end_as_a_message_or_a_dead_letter__D2(data: bytes) -> None:
    records = outcomes(read_ndjson, data)
    lines = enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1)
    assert [record.line for record in records] == [n for n, text in lines if text.strip(b" \t\r")]


@quietly
@given(csvs)
def test_any_bytes_as_csv_end_as_a_message_or_a_dead_letter__D2(data: bytes) -> None:
    records = outcomes(read_csv, data)
    lines = [record.line for record in records]
    assert lines == sorted(set(lines))


@pytest.mark.parametrize("reader", [read_ndjson, read_csv])
def test_no_bytes_are_no_records__D2(reader: Reader) -> None:
    assert outcomes(reader, b"") == []
