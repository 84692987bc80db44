import io
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delivery.records import DUE_MS, read_csv, read_ndjson
from tickwheel.delivery.model.message import MAX_RECORD, Columns
from tickwheel.delivery.read.blocks import LineBlocks
from tickwheel.delivery.read.sources import read_csv as read_blocks

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


class Pipe(io.RawIOBase):
    """Each read gives the next part."""

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = parts

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        part = self.parts.pop(0) if self.parts else b""
        buffer[: len(part)] = part
        return len(part)


def test_a_row_is_there_before_the_next_one_comes__D11() -> None:
    pipe = Pipe([HEADER["csv"], GOOD["csv"], b"later"])
    records, line = next(read_blocks("in", LineBlocks(pipe.read, MAX_RECORD), Columns(), lambda: 0))
    assert (len(records), line, pipe.parts) == (1, 2, [b"later"])


@given(st.lists(st.sampled_from([b'"', b"\n", b",", b"\r\n", GOOD["csv"], b'a,5,"', b"\xc3\xa9"])), st.randoms())
def test_rows_are_the_same_wherever_a_read_ends__D2(parts: list[bytes], random: Random) -> None:
    data = b"\xef\xbb\xbfid,due\n" + b"".join(parts)
    ends = sorted(random.randrange(1, len(data)) for _ in parts)
    pipe = Pipe([data[start:end] for start, end in pairwise([0, *ends, len(data)]) if start < end])
    in_parts, at_once = ([(*found[:3], found.id, str(found.bad)) for found in read_csv(it)] for it in (pipe, data))
    assert in_parts == at_once


def test_a_block_has_few_short_lines_and_many_bytes_of_long_ones__D8() -> None:
    short = [block.line - block.first_line for block in LineBlocks(io.BytesIO(b"x\n" * 1_000_000).read, 1 << 20)]
    assert max(short) < 1 << 13
    long = [len(block.data) for block in LineBlocks(io.BytesIO((b"x" * 999 + b"\n") * 5_000).read, 1 << 20)]
    assert max(long) > 250_000
    assert len(long) < 40
