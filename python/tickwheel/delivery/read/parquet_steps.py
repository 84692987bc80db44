"""How many rows of a Parquet row group may be read at once, so that memory stays bounded whatever they hold (rule D12).

Of each column, memory has the largest page and the dictionary, decoded, and the values of the rows. For a page of plain
values of 10 MB with three rows, that is 10 MB and 10 MB. If the rows' values are places in a dictionary whose longest
value has 1 MB, 16 rows may take 16 MB, whatever the size of the page.
"""

from collections import Counter
from typing import Any, BinaryIO

from tickwheel.delivery.base.errors import BadRecord
from tickwheel.delivery.read.parquet_pages import Chunk, pages_of

_MOST = 128 << 20
_MOST_AT_ONCE = 16 << 20
_FIXED = 16  # bytes of a number, or of a text's place
_FIX = f"at most {_MOST:,} bytes: write the file with smaller row groups and pages"


def rows_at_once(stream: BinaryIO, schema: Any, chunks: list[Chunk], most: int) -> int:
    """From 1 to `most`. Errors: `BadRecord` if a single row could take too much memory."""
    columns = [_Column(stream, schema.column(at), chunk) for at, chunk in enumerate(chunks)]
    if (size := sum(column.kept for column in columns)) > _MOST:
        raise BadRecord(f"its largest pages have {size:,} bytes together", _FIX)
    width = sum(column.width for column in columns)

    def begun(rows: int) -> int:
        return sum(column.begun(rows) for column in columns)

    if (least := width + begun(1)) > _MOST:
        raise BadRecord(f"a row may have {least:,} bytes", _FIX)
    rows = max(1, min(most, _MOST_AT_ONCE // max(1, width)))
    while rows > 1 and begun(rows) > max(_MOST_AT_ONCE, begun(1)):
        rows //= 2
    return rows


class _Column:
    """What a column of a row group takes. `kept`: its largest page and its dictionary. `width`: what each row may take
    of the dictionary, or by itself.
    """

    def __init__(self, stream: BinaryIO, of: Any, chunk: Chunk) -> None:
        is_text, depth = of.physical_type == "BYTE_ARRAY", of.max_repetition_level
        fixed = max(_FIXED, of.length or 0)
        dictionary = longest = largest = prefixed = row = 0
        self._begun: Counter[int] = Counter()  # the bytes of the pages that begin in a row
        for page in pages_of(stream, chunk, depth, _MOST):
            if page.is_dictionary:
                dictionary, longest = max(dictionary, page.size), max(longest, page.longest)
                continue
            largest = max(largest, page.size)
            if page.uses_prefixes:
                prefixed = max(prefixed, page.size)
            of_value = longest if page.uses_dictionary else page.size if page.uses_prefixes else 0
            of_value *= is_text
            if depth:
                self._begun[max(row - 1, 0)] += page.size + page.values * (fixed + of_value)
            elif not of_value:
                self._begun[row] += page.size
            row += page.rows or 0
        self.kept = dictionary + largest
        self.width = 0 if depth else fixed + (max(longest, prefixed) if is_text else 0)

    def begun(self, rows: int) -> int:
        """The most bytes of pages that begin in so many rows."""
        steps: Counter[int] = Counter()
        for row, size in self._begun.items():
            steps[row // rows] += size
        return max(steps.values(), default=0)
