"""Input designed to be slow: four times as much takes about four times as long, not sixteen times."""

import math
import time
from collections.abc import Callable

import pytest

from delivery.records import READERS, read_csv

Input = Callable[[int], bytes]

INPUTS: dict[str, tuple[str, Input]] = {
    "digits of a due time": ("ndjson", lambda n: b'{"id":"a","due":' + b"9" * n + b"}"),
    "digits of a delay": ("ndjson", lambda n: b'{"id":"a","delay_ms":0.' + b"9" * n + b"}"),
    "digits of an exponent": ("ndjson", lambda n: b'{"id":"a","delay_ms":1e' + b"9" * n + b"}"),
    "digits of a payload": ("ndjson", lambda n: b'{"id":"a","due":1700000000005,"payload":' + b"9" * n + b"}"),
    "digits of a second": ("ndjson", lambda n: b'{"id":"a","due":"2026-01-31T08:00:00.' + b"9" * n + b'Z"}'),
    "text for a time": ("ndjson", lambda n: b'{"id":"a","due":"' + b"2026-01-31T08:00:00" * (n // 19) + b'"}'),
    "escapes": ("ndjson", lambda n: b'{"id":"' + rb"\u00e9" * (n // 6) + b'","due":1700000000005}'),
    "arrays": ("ndjson", lambda n: b'{"id":"a","due":1700000000005,"payload":' + b"[" * n + b"]" * n + b"}"),
    "objects that do not end": ("ndjson", lambda n: b'{"a":' * (n // 5)),
    "names": (
        "ndjson",
        lambda n: b'{"id":"a","due":1700000000005' + b"".join(b',"%d":1' % at for at in range(n // 8)) + b"}",
    ),
    "returns": ("ndjson", lambda n: b'{"id":"a","due":1700000000005,"payload":[1' + b"\r" * n + b"]}"),
    "blank lines": ("ndjson", lambda n: b"\n" * (n // 4)),
    "base64": ("ndjson", lambda n: b'{"id":"a","due":1700000000005,"payload_base64":"' + b"A" * n + b'"}'),
    "bytes that are no text": ("ndjson", lambda n: b"\xff" * n),
    "lines that are too long": ("ndjson", lambda n: b"x" * (n * 32)),
    "digits in a cell": ("csv", lambda n: b"id,due\na," + b"9" * n),
    "a payload that is nearly JSON": ("csv", lambda n: b"id,due,payload\na,1700000000005," + b"[" * n),
    "columns": (
        "csv",
        lambda n: b"id,due" + b"".join(b",%d" % at for at in range(n // 8)) + b"\na,1700000000005" + b",1" * (n // 8),
    ),
    "columns of one name": ("csv", lambda n: b"id,due" + b",x" * (n // 2) + b"\na,5\n"),
    "doubled quotes": ("csv", lambda n: b'id,due,payload\na,1700000000005,"' + b'""' * n + b'"'),
    "quotes that open": ("csv", lambda n: b"id,due,payload\n" + b'a,5,"open\n' * (n // 16)),
    "a quote in every other line": ("csv", lambda n: b"id,due,payload\n" + b'a,5,"open\nb,5,x\n' * (n // 16)),
    "a cell of many lines": ("csv", lambda n: b'id,due,payload\na,1700000000005,"' + b"x\n" * (n // 4) + b'"'),
}


def seconds(format_: str, data: bytes) -> float:
    """Processor time, the least of some runs."""
    least = math.inf
    for _ in range(5):
        began = time.process_time()
        READERS[format_](data)
        least = min(least, time.process_time() - began)
    return least


@pytest.mark.parametrize("what", INPUTS)
def test_time_grows_with_the_size_of_the_input_and_no_faster__D12(what: str) -> None:
    format_, made = INPUTS[what]
    small, large = made(1 << 16), made(1 << 18)
    for _ in range(3):  # because of other load on the machine
        ratio = seconds(format_, large) / max(seconds(format_, small), 50e-6)
        if ratio < 9:
            return
    pytest.fail(f"four times the input took {ratio:.1f} times as long")


def test_a_large_cell_is_read_after_broken_rows__D12() -> None:
    large = b'a,1700000000005,"' + b"x" * 500_000 + b"\n" + b"y" * 500_000 + b'"\n'
    data = b"id,due,payload\n" + b'b,5,"shut"x\n' + large + b'c,5,"open\nd,5,"x\n' * 50 + large
    found = read_csv(data)
    assert [record.line for record in found if not record.bad] == [3, 105]
    assert [record.line for record in found if record.bad] == [2, *range(5, 105, 2)]
