import io

import pytest

from tickwheel.delivery import BadRecord
from tickwheel.delivery.lines import MAX_RECORD, read_lines


def test_a_line_that_is_too_long_is_cut_and_the_next_is_read__D12() -> None:
    long = b"x" * (MAX_RECORD + 5)
    first, second, third = read_lines(io.BytesIO(long + b"\n" + b"a\n" + long))
    assert (first.number, first.size, len(first.data)) == (1, MAX_RECORD + 6, 1024)
    assert second.data == b"a\n"
    assert (third.number, third.size) == (3, MAX_RECORD + 5)
    with pytest.raises(BadRecord, match="at most 2,097,152 bytes"):
        first.text()


@pytest.mark.parametrize("size", [MAX_RECORD - 1, MAX_RECORD])
def test_a_line_of_just_the_bound_is_whole__D12(size: int) -> None:
    line, last = read_lines(io.BytesIO(b"x" * (size - 1) + b"\n" + b"a"))
    assert line.text() == "x" * (size - 1) + "\n"
    assert last.data == b"a"


def test_a_line_is_there_before_the_next_one_comes__D11() -> None:
    class Pipe(io.RawIOBase):
        given = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            self.given += 1
            buffer[:2] = b"a\n"
            return 2

    pipe = Pipe()
    assert next(read_lines(io.BufferedReader(pipe))).data == b"a\n"
    assert pipe.given == 1
