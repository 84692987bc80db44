import io

import pytest

from delivery.records import DUE_MS, read_csv, read_ndjson
from tickwheel.delivery.model.message import MAX_RECORD
from tickwheel.delivery.read.csv_rows import split

LONG = b"x" * (MAX_RECORD + 5)
GOOD = {"csv": b"a,%d\n" % DUE_MS, "ndjson": b'{"id":"a","due":%d}\n' % DUE_MS}
HEADER = {"csv": b"id,due\n", "ndjson": b"\n"}
READ = {"csv": read_csv, "ndjson": read_ndjson}


@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_a_line_that_is_too_long_is_cut_and_the_next_is_read__D12(form: str) -> None:
    first, second, third = READ[form](HEADER[form] + LONG + b"\n" + GOOD[form] + LONG)
    assert first.bad is not None
    assert first.bad.reason == "the record has 2,097,158 bytes, only the first 1,024 are kept here"
    assert first.bad.allowed == "at most 2,097,152 bytes"
    assert (first.line, first.data) == (2, b"x" * 1024)
    assert (second.line, second.id) == (3, "a")
    assert third.bad is not None
    assert (third.line, third.bad.reason[:30]) == (4, "the record has 2,097,157 bytes")


@pytest.mark.parametrize("form", ["csv", "ndjson"])
@pytest.mark.parametrize("size", [MAX_RECORD - 1, MAX_RECORD])
def test_a_line_of_just_the_bound_is_whole__D12(form: str, size: int) -> None:
    line, last = READ[form](HEADER[form] + b"x" * (size - 1) + b"\n" + GOOD[form])
    assert line.bad is not None
    assert "the record has" not in line.bad.reason
    assert line.data == b"x" * (size - 1)
    assert last.id == "a"


def test_a_row_is_there_before_the_next_one_comes__D11() -> None:
    class Pipe(io.RawIOBase):
        given = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            self.given += 1
            buffer[:2] = b"a\n"
            return 2

    pipe = Pipe()
    assert next(split(io.BufferedReader(pipe))).cells == ["a"]
    assert pipe.given == 1
