"""Reads CSV with a header row: commas, double quotes, rows that may span lines (RFC 4180), in UTF-8.

The separator is the one that makes a column of the id: a name may have commas in it.

The reader is native: `crates/delivery/src/formats/csv_rows.rs`.
"""

from collections.abc import Callable, Iterator
from itertools import chain

from tickwheel._native import CsvRows, Records
from tickwheel.delivery.model.message import MAX_PAYLOAD, Columns
from tickwheel.delivery.read.blocks import Block, LineBlocks


def read_csv(
    source: str, blocks: LineBlocks, columns: Columns, now_ns: Callable[[], int | None], after: int = 0
) -> Iterator[tuple[Records, int]]:
    """The records that begin after the line `after`, each time with the line where the last one begins. After a header
    that can't be used, which is one bad record, nothing of the file is read.
    """
    rows = CsvRows(source, columns.names, MAX_PAYLOAD, after=after)
    for block in chain(blocks, [Block(b"", 0, 0)]):  # no bytes are the end
        records, line, is_refused = rows.read(block.data, left_out=block.left_out, now_ns=now_ns())
        if len(records):
            yield records, line
        if is_refused:
            return
