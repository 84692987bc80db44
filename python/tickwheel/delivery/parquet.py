"""Reads Parquet files, a row group and a batch at a time; a record's line is its row, counted from 1.

- Memory holds one batch of at most `_ROWS` rows and about `_BYTES` bytes. It may be larger by `_STEP` rows, whose size
  is known only once they are read: in a small file every row may have the same large value.
- A file that can't be opened is one dead letter, at line 1, and the other files go on (D2). A broken row group is one
  dead letter at the row where reading stopped; it names the lost rows, and the next row group goes on. An error of the
  operating system ends the run, as for other formats.

pyarrow is loaded when the first Parquet file is named: `pip install 'tickwheel[parquet]'`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from tickwheel.delivery.errors import BadRecord, WrongUsage
from tickwheel.delivery.message import Columns
from tickwheel.delivery.record import Record

if TYPE_CHECKING:
    import pyarrow as pa

_STEP = 64
_ROWS = 1024
_BYTES = 4 << 20
_BUFFER = 1 << 18  # bytes read ahead per column; without it, the whole column of a row group
_WHOLE = "an undamaged Parquet file"


def need_pyarrow() -> None:
    """Errors: `WrongUsage` if pyarrow can't be loaded, before anything is read."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise WrongUsage("pyarrow is not installed: run pip install 'tickwheel[parquet]'") from error


def read_parquet(source: str, stream: BinaryIO, columns: Columns, after: int = 0) -> Iterator[Record]:
    """The records of a Parquet file after the row `after`.

    Errors: `OSError` if the file can't be read, `WrongUsage` without pyarrow.
    """
    need_pyarrow()
    from pyarrow import parquet

    from tickwheel.delivery.arrow_rows import read_rows

    try:
        file = parquet.ParquetFile(stream, buffer_size=_BUFFER, page_checksum_verification=True)
        groups = [file.metadata.row_group(group) for group in range(file.num_row_groups)]
    except Exception as error:
        yield Record(source, 1, b"", BadRecord(f"the file can't be read: {_reason(error)}", _WHOLE))
        return
    line = 0
    for number, group in enumerate(groups):
        end, reason = line + group.num_rows, "there are no more"
        for batch in _batches(file, number, group):
            if isinstance(batch, str):
                reason = batch
                break
            for rows in read_rows(batch, columns):
                for at, content in enumerate(rows.contents):
                    line += 1
                    if line <= after:
                        continue
                    yield Record(source, line, rows.data(at), content)
        if max(line, after) < end:
            line = max(line, after)
            yield Record(source, line + 1, b"", BadRecord(f"rows {line + 1} to {end} can't be read: {reason}", _WHOLE))
            line = end


def _batches(file: Any, number: int, group: Any) -> "Iterator[pa.RecordBatch | str]":
    """The row group in batches, at the end the reason if it can't be read further. It is read in small steps, because
    the size of rows is known only after reading, and returned in large batches.
    """
    import pyarrow as pa

    step = max(1, min(_STEP, _BYTES * group.num_rows // max(1, group.total_byte_size)))
    taken: list[pa.RecordBatch] = []
    size, reason = 0, None
    steps = file.iter_batches(batch_size=step, row_groups=[number], use_threads=False)
    while True:
        try:
            batch = next(steps, None)
        except Exception as error:
            batch, reason = None, _reason(error)
        if batch is not None:
            taken.append(batch)
            size += batch.nbytes
        if taken and (batch is None or len(taken) * step >= _ROWS or size >= _BYTES):
            yield pa.concat_batches(taken)
            taken, size = [], 0
        if batch is None:
            break
    if reason is not None:
        yield reason


def _reason(error: Exception) -> str:
    """Arrow's own message. An error of the operating system is raised again: it is not about the file's content."""
    if isinstance(error, OSError) and error.errno is not None:
        raise error
    return " ".join(str(error).split())[:200]
