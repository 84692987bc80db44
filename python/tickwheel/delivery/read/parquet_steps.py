"""How many rows of a Parquet row group may be read at once, so that memory stays bounded whatever they hold (rule D12).

Of each column, memory has a page and the dictionary, decoded, and the values of the rows. For a page of plain values of
10 MB with three rows, that is 10 MB and 10 MB. If the rows' values are places in a dictionary whose longest value has
1 MB, 16 rows may take 16 MB, whatever the size of the page.

How many values a row of lists or maps has is in the data alone: a list of 100 million nulls takes a page of 20 bytes.
So all values of such columns in the row group may be in one row. Together they may take 256 MiB, or as many times
their bytes in the file as those of ordinary files, which are compressed.
"""

from collections import Counter
from typing import Any, BinaryIO

from tickwheel.delivery.base.errors import BadRecord
from tickwheel.delivery.read.parquet_pages import Chunk, pages_of

_MOST = 128 << 20
_MOST_AT_ONCE = 16 << 20
_FIXED = 16  # bytes of a number, or of a text's place
_IN_LISTS = {"BOOLEAN": 5, "INT32": 8, "FLOAT": 8, "INT64": 12, "DOUBLE": 12}  # with the levels of its nesting
_TIMES_COMPRESSED = 64
_MOST_OF_ALL = 256 << 20  # the largest pages of all columns, as one page of each is in memory
_SMALLER_GROUPS = "fewer values in a row group: write the file with smaller row groups, or each list as JSON in text"
_FIX = "at most {:,} bytes: write the file with smaller pages"


def rows_at_once(stream: BinaryIO, schema: Any, chunks: list[Chunk], rows: int, most: int) -> int:
    """From 1 to `most`, of so many rows. Errors: `BadRecord` if a page, one of each column, or a single row could take
    too much memory.
    """
    columns: list[_Column] = []
    size = in_lists = compressed = 0
    for at, chunk in enumerate(chunks):
        column = _Column(stream, of := schema.column(at), chunk)
        if of.max_repetition_level > 0:
            in_lists += column.values * column.width
            compressed += column.compressed
            if in_lists > max(_MOST_OF_ALL, _TIMES_COMPRESSED * compressed):
                raise BadRecord(f"a list in it may have {column.values:,} values", _SMALLER_GROUPS)
            continue
        if column.largest > _MOST:
            raise BadRecord(f"a page of it has {column.largest:,} bytes", _FIX.format(_MOST))
        size += column.kept
        if size > _MOST_OF_ALL:  # the other columns are not read for nothing
            text = f"the largest pages of its columns have {size:,} bytes or more together"
            raise BadRecord(text, _FIX.format(_MOST_OF_ALL) + " or fewer columns")
        columns.append(column)
    width = sum(column.width for column in columns) + in_lists // max(1, rows)
    if width > _MOST:
        raise BadRecord(f"a row may have {width:,} bytes", _FIX.format(_MOST))

    def begun(rows: int) -> int:
        return sum(column.begun(rows) for column in columns)

    step = max(1, min(most, _MOST_AT_ONCE // max(1, width)))
    while step > 1 and begun(step) > max(_MOST_AT_ONCE, begun(1)):
        step //= 2
    return step


class _Column:
    """What a column of a row group takes. `values`, and `compressed`, their bytes in the file. `largest`: its largest
    page. `kept`: its dictionary and its largest other page. `width`: what each value may take of the dictionary, or by
    itself.
    """

    def __init__(self, stream: BinaryIO, of: Any, chunk: Chunk) -> None:
        is_text = of.physical_type == "BYTE_ARRAY"
        longest = prefixed = row = dictionary = largest = 0
        self.compressed = 0
        self._begun: Counter[int] = Counter()  # the bytes of the pages that begin in a row
        for page in pages_of(stream, chunk, _MOST if is_text else 0):
            self.compressed += page.compressed
            if page.is_dictionary:
                dictionary, longest = page.size, page.longest
                continue
            largest = max(largest, page.size)
            if page.uses_prefixes:
                prefixed = max(prefixed, page.size)
            elif not page.uses_dictionary:
                self._begun[row] += page.size
            row += page.values
        self.values = row
        self.largest, self.kept = max(dictionary, largest), dictionary + largest
        fixed = _IN_LISTS.get(of.physical_type, _FIXED) if of.max_repetition_level > 0 else _FIXED
        self.width = max(fixed, of.length or 0) + (max(longest, prefixed) if is_text else 0)

    def begun(self, rows: int) -> int:
        """The most bytes of pages that begin in so many rows."""
        steps: Counter[int] = Counter()
        for row, size in self._begun.items():
            steps[row // rows] += size
        return max(steps.values(), default=0)
