"""Input designed to be slow: four times as much takes about four times as long, not sixteen times."""

import contextlib
import io
import math
import time
from collections.abc import Callable

import pytest

from tickwheel.delivery import csv_rows
from tickwheel.delivery.csv_rows import read_csv
from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.lines import MAX_RECORD, Line
from tickwheel.delivery.message import Columns, check
from tickwheel.delivery.ndjson import read_ndjson

Input = Callable[[int], bytes]

INPUTS: dict[str, tuple[str, Input]] = {
    "digits of a due time": ("ndjson", lambda n: b'{"id":"a","due":' + b"9" * n + b"}"),
    "digits of a delay": ("ndjson", lambda n: b'{"id":"a","delay_ms":0.' + b"9" * n + b"}"),
    "digits of an exponent": ("ndjson", lambda n: b'{"id":"a","delay_ms":1e' + b"9" * n + b"}"),
    "digits of a payload": ("ndjson", lambda n: b'{"id":"a","due":5,"payload":' + b"9" * n + b"}"),
    "digits of a second": ("ndjson", lambda n: b'{"id":"a","due":"2026-01-31T08:00:00.' + b"9" * n + b'Z"}'),
    "text for a time": ("ndjson", lambda n: b'{"id":"a","due":"' + b"2026-01-31T08:00:00" * (n // 19) + b'"}'),
    "escapes": ("ndjson", lambda n: b'{"id":"' + rb"\u00e9" * (n // 6) + b'","due":5}'),
    "arrays": ("ndjson", lambda n: b'{"id":"a","due":5,"payload":' + b"[" * n + b"]" * n + b"}"),
    "objects that do not end": ("ndjson", lambda n: b'{"a":' * (n // 5)),
    "names": ("ndjson", lambda n: b'{"id":"a","due":5' + b"".join(b',"%d":1' % at for at in range(n // 8)) + b"}"),
    "returns": ("ndjson", lambda n: b'{"id":"a","due":5,"payload":[1' + b"\r" * n + b"]}"),
    "blank lines": ("ndjson", lambda n: b"\n" * (n // 4)),
    "base64": ("ndjson", lambda n: b'{"id":"a","due":5,"payload_base64":"' + b"A" * n + b'"}'),
    "bytes that are no text": ("ndjson", lambda n: b"\xff" * n),
    "lines that are too long": ("ndjson", lambda n: b"x" * (n * 32)),
    "digits in a cell": ("csv", lambda n: b"id,due\na," + b"9" * n),
    "a payload that is nearly JSON": ("csv", lambda n: b"id,due,payload\na,5," + b"[" * n),
    "columns": (
        "csv",
        lambda n: b"id,due" + b"".join(b",%d" % at for at in range(n // 8)) + b"\na,5" + b",1" * (n // 8),
    ),
    "columns of one name": ("csv", lambda n: b"id,due" + b",x" * (n // 2) + b"\na,5\n"),
    "doubled quotes": ("csv", lambda n: b'id,due,payload\na,5,"' + b'""' * n + b'"'),
    "quotes that open": ("csv", lambda n: b"id,due,payload\n" + b'a,5,"open\n' * (n // 16)),
    "a quote in every other line": ("csv", lambda n: b"id,due,payload\n" + b'a,5,"open\nb,5,x\n' * (n // 16)),
    "a cell of many lines": ("csv", lambda n: b'id,due,payload\na,5,"' + b"x\n" * (n // 4) + b'"'),
}


def seconds(format_: str, data: bytes) -> float:
    """Processor time, the least of some runs."""
    least = math.inf
    for _ in range(5):
        began = time.process_time()
        read(format_, data)
        least = min(least, time.process_time() - began)
    return least


def read(format_: str, data: bytes) -> None:
    reader = {"ndjson": read_ndjson, "csv": read_csv}[format_]
    for record in reader("slow", io.BytesIO(data), Columns()):
        with contextlib.suppress(BadRecord):
            check(record.fields(), Columns(), now_ns=0)


@pytest.mark.parametrize("what", INPUTS)
def test_time_grows_with_the_size_of_the_input_and_no_faster__D12(what: str) -> None:
    format_, made = INPUTS[what]
    small, large = made(1 << 16), made(1 << 18)
    for _ in range(3):  # because of other load on the machine
        ratio = seconds(format_, large) / max(seconds(format_, small), 50e-6)
        if ratio < 9:
            return
    pytest.fail(f"four times the input took {ratio:.1f} times as long")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the lines read, once for each read; with little patience, so that the test reaches its end."""
    seen: list[int] = []
    text = Line.text

    def look(line: Line) -> str:
        seen.append(line.number)
        return text(line)

    monkeypatch.setattr(Line, "text", look)
    monkeypatch.setattr(csv_rows, "_PATIENCE", 10_000)
    return seen


@pytest.mark.parametrize("row", [b'x",5,"\n', b'a,5,"open\n', b'a,5,"open\nb,5,"""\n', b'a,5,"\nb,5,""\n'])
def test_rows_that_do_not_end_are_not_looked_at_again_and_again__D12(row: bytes, looks: list[int]) -> None:
    counts = []
    for times in (1000, 4000):
        looks.clear()
        read("csv", b"id,due,payload\n" + row * times)
        counts.append(len(looks))
    assert counts[1] < 4.2 * counts[0]
    assert counts[1] < 2 * 4000 * row.count(b"\n") + 10_000 // 7 + 10


def test_there_is_patience_for_a_large_cell_after_some_broken_rows__D12() -> None:
    large = b'a,5,"' + b"x" * 500_000 + b"\n" + b"y" * 500_000 + b'"\n'
    data = b"id,due,payload\n" + b'b,5,"open\n' + large + b'c,5,"open\nd,5,x\n' * 50 + large
    found = list(read_csv("slow", io.BytesIO(data), Columns()))
    good = [record for record in found if not isinstance(record.content, BadRecord)]
    assert len(data) < MAX_RECORD
    assert [record.line for record in good if len(record.data) > 1_000_000] == [3, 105]
