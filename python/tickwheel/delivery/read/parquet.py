"""Reads Parquet files by pyarrow, a row group and a batch at a time; a record's line is its row, counted from 1.

- Memory holds one batch of at most `_ROWS` rows and about `_BYTES` bytes, and what pyarrow reads at once: of each
  column a page and a dictionary, and the values of `_STEP` rows. By the footer, a row group has at most
  `_MOST_OF_A_GROUP` bytes (D8). For a damaged file, or for rows of many megabytes from a dictionary, pyarrow may take
  gigabytes.
- A file that can't be opened, whose columns can't be used, or with a row group that is too large, is one dead letter,
  at line 1, and the other files go on (D2). A broken row group is one dead letter at the row where reading stopped; it
  names the lost rows, and the next row group goes on. An error of the operating system ends the run, as for other
  formats.

pyarrow is loaded when the first Parquet file is named: `pip install 'tickwheel[parquet]'`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from tickwheel._native import ArrowRows, Records
from tickwheel.delivery.base.errors import BadRecord, WrongUsage
from tickwheel.delivery.model.message import MAX_PAYLOAD, MAX_RECORD, Columns
from tickwheel.delivery.read.blocks import WallNs

if TYPE_CHECKING:
    import pyarrow as pa

_STEP = 32
_ROWS = 1024
_BYTES = 4 << 20
_BUFFER = 1 << 18  # bytes read ahead per column; without it, the whole column of a row group
_MOST_ROW = 8 * MAX_RECORD
_MOST_OF_A_GROUP = 1 << 30
_WHOLE = "an undamaged Parquet file"


def need_pyarrow() -> None:
    """Errors: `WrongUsage` if pyarrow can't be loaded, before anything is read."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise WrongUsage("pyarrow is not installed: run pip install 'tickwheel[parquet]'") from error


def read_parquet(
    source: str, stream: BinaryIO, columns: Columns, now_ns: WallNs, after: int = 0, max_payload: int = MAX_PAYLOAD
) -> Iterator[tuple[Records, int]]:
    """The records of a Parquet file after the row `after`, each time with the row of the last one; 0 if none was read.

    Errors: `OSError` if the file can't be read, `WrongUsage` without pyarrow.
    """
    need_pyarrow()
    from pyarrow import parquet

    from tickwheel.delivery.read.arrow import check_names, read_batch

    def bad(line: int, reason: str, allowed: str) -> Records:
        return Records.bad(source, line, reason, allowed, b"")

    rows = ArrowRows(source, columns, max_payload)
    try:
        # With `pre_buffer` a whole row group would be in memory, read by threads.
        file = parquet.ParquetFile(stream, buffer_size=_BUFFER, pre_buffer=False, page_checksum_verification=True)
        groups = [file.metadata.row_group(group) for group in range(file.num_row_groups)]
        check_names(rows, file.schema_arrow)
        _check_sizes(groups)
    except BadRecord as fault:
        yield bad(1, fault.reason, fault.allowed), 0
        return
    except Exception as error:
        yield bad(1, f"the file can't be read: {_reason(error)}", _WHOLE), 0
        return
    line = 0
    for number, group in enumerate(groups):
        end, reason = line + group.num_rows, "there are no more"
        for batch in _batches(file, number, group):
            if isinstance(batch, str):
                reason = batch
                break
            skipped = min(max(after - line, 0), batch.num_rows)
            line += skipped
            if batch.num_rows == 1 and not skipped and batch.nbytes > _MOST_ROW:
                line += 1
                yield bad(line, f"the row has {batch.nbytes:,} bytes", f"a row of at most {_MOST_ROW:,} bytes"), line
                continue
            for records in read_batch(rows, batch.slice(skipped), first_line=line + 1, now_ns=now_ns()):
                line += len(records)
                yield records, line
        if (first := max(line, after) + 1) <= end:
            yield bad(first, f"rows {first} to {end} can't be read: {reason}", _WHOLE), end
        line = end


def _check_sizes(groups: list[Any]) -> None:
    """Errors: `BadRecord` if the file has a row group of a size that is not read."""
    for number, group in enumerate(groups, 1):
        if group.num_rows < 0:
            raise BadRecord(f"the file can't be read: row group {number} has {group.num_rows} rows", _WHOLE)
        if group.total_byte_size > _MOST_OF_A_GROUP:
            raise BadRecord(
                f"row group {number} has {group.total_byte_size:,} bytes before compression",
                f"at most {_MOST_OF_A_GROUP:,}: write the file with smaller row groups; no row of it is read",
            )


def _batches(file: Any, number: int, group: Any) -> "Iterator[pa.RecordBatch | str]":
    """The row group in batches, at the end the reason if it can't be read further. It is read in small steps, because
    the size of rows is known only after reading, and returned in large batches.
    """
    import pyarrow as pa

    step = max(1, min(_STEP, _BYTES * group.num_rows // max(1, group.total_byte_size)))
    try:
        steps = file.iter_batches(batch_size=step, row_groups=[number], use_threads=False)
    except Exception as error:
        yield _reason(error)
        return
    taken: list[pa.RecordBatch] = []
    size, broken = 0, ""
    while True:
        try:
            batch = next(steps, None)
        except Exception as error:
            batch, broken = None, _reason(error)
        is_large = batch is not None and batch.nbytes > _BYTES
        if batch is not None and not is_large:
            taken.append(batch)
            size += batch.nbytes
        if taken and (batch is None or is_large or len(taken) * step >= _ROWS or size >= _BYTES):
            yield pa.concat_batches(taken)
            taken, size = [], 0
        if batch is None:
            break
        if is_large:
            yield from _in_pieces(batch)
    if broken:
        yield broken


def _in_pieces(batch: "pa.RecordBatch") -> "Iterator[pa.RecordBatch]":
    """The batch without dictionaries, in pieces of about `_BYTES`, as each piece is copied several times."""
    import pyarrow as pa

    columns = [it.dictionary_decode() if pa.types.is_dictionary(it.type) else it for it in batch.columns]
    dense = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    rows = max(1, batch.num_rows * _BYTES // dense.nbytes)
    for start in range(0, batch.num_rows, rows):
        yield dense.slice(start, rows)


def _reason(error: Exception) -> str:
    """Arrow's own message. An error of the operating system is raised again: it is not about the file's content."""
    if isinstance(error, OSError) and error.errno is not None:
        raise error
    return " ".join(str(error).split())[:200]
