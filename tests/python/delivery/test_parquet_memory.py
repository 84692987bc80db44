"""A short Parquet file can hold much: memory stays bounded whatever it is decoded to (D12)."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delivery.records import DUE_MS, read_parquet
from tickwheel.delivery.model.message import Message
from tickwheel.delivery.read.parquet_pages import longest_of

MIB = 1 << 20
_TABLE = tuple[dict[str, Any], dict[str, Any]]


def many_of_a_dictionary() -> _TABLE:
    payloads = pa.DictionaryArray.from_arrays(pa.array([0] * 100), pa.array(["x" * (9 * MIB)]))
    return {"payload": payloads}, {"store_schema": False}


def many_of_a_dictionary_that_stays_one() -> _TABLE:
    return {"payload": many_of_a_dictionary()[0]["payload"]}, {"store_schema": True}


def prefixes() -> _TABLE:
    how = {"use_dictionary": False, "column_encoding": {"payload": "DELTA_BYTE_ARRAY"}}
    return {"payload": ["x" * (8 * MIB)] * 64}, how


def wide_nulls() -> _TABLE:
    return {"payload": pa.nulls(40, pa.binary(12 * MIB))}, {}


def a_few_large_rows_among_small_ones() -> _TABLE:
    payloads = ["y"] * 20_000 + ["x" * (8 * MIB)] * 40
    return {"payload": payloads}, {"use_dictionary": False, "write_batch_size": 1}


def one_page() -> _TABLE:
    return {"payload": ["x" * (300 * MIB)]}, {"use_dictionary": False}


def many_columns_of_large_pages() -> _TABLE:
    texts = pa.array(["x" * (64 << 10)] * 192)
    how = {"use_dictionary": False, "data_page_size": 1 << 30, "write_batch_size": 192}
    return {"payload": texts, **{f"c{at}": texts for at in range(39)}}, how


def columns_that_just_fit() -> _TABLE:
    columns, how = many_columns_of_large_pages()
    return dict(list(columns.items())[:20]), how


def one_long_list() -> _TABLE:
    return {"payload": pa.array([pa.nulls(40_000_000, pa.int32())], pa.list_(pa.int32()))}, {}


def many_long_lists() -> _TABLE:
    """Each of them alone would do."""
    of = {f"c{at}": pa.array([pa.nulls(9_000_000, pa.int32())], pa.list_(pa.int32())) for at in range(4)}
    return {"payload": [1], **of}, {}


def many_lists_of_a_dictionary() -> _TABLE:
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 100_000), pa.array(["x" * (1 << 14)]))
    return {"payload": pa.ListArray.from_arrays(pa.array(range(0, 100_001, 1_000)), texts)}, {"store_schema": False}


_SCRIPT = """
import json, sys
from tickwheel.delivery.model.message import Columns
from tickwheel.delivery.read.parquet import need_pyarrow, read_parquet

def peak():
    with open("/proc/self/status") as status:
        return int(status.read().partition("VmHWM:")[2].split()[0]) // 1024

need_pyarrow()
import tickwheel.delivery.read.arrow
before = peak()
with open(sys.argv[1], "rb") as file:
    parts = read_parquet("test", file, Columns(), lambda: 0)
    faults = [fault and fault[1] for records, _ in parts for fault in records.faults()]
print(json.dumps([peak() - before, faults]))
"""


def _read(made: Callable[[], _TABLE], tmp_path: Path) -> tuple[int, int, list[Any]]:
    """How many rows the file has, by how many MiB reading it raised the peak of memory, and the faults."""
    columns, how = made()
    rows = len(columns["payload"])
    table = pa.table({"id": [f"m{at}" for at in range(rows)], "due": [DUE_MS] * rows, **columns})
    path = tmp_path / "some.parquet"
    pq.write_table(table, path, compression="zstd", **how)
    assert path.stat().st_size < MIB
    return rows, *_read_file(path)


def _read_file(path: Path) -> tuple[int, list[Any]]:
    read = subprocess.run([sys.executable, "-c", _SCRIPT, path], capture_output=True, check=True, timeout=100)
    mib, faults = json.loads(read.stdout)
    return mib, faults


_PAGE = "rows 1 to 1 can't be read: a page of it has 314,572,"


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (many_of_a_dictionary, "the payload has 9,437,184 bytes"),
        (many_of_a_dictionary_that_stays_one, "the payload has 9,437,184 bytes"),
        (prefixes, "the payload has 8,388,608 bytes"),
        (wide_nulls, ""),
        (a_few_large_rows_among_small_ones, "the payload has 8,388,608 bytes"),
        (one_page, _PAGE),
    ],
)
def test_a_short_file_takes_no_more_than_256_mib_whatever_it_is_decoded_to__D12(
    made: Callable[[], _TABLE], reason: str, tmp_path: Path
) -> None:
    rows, mib, faults = _read(made, tmp_path)
    assert mib < 256
    assert len(faults) == rows
    assert (faults[-1] or "").startswith(reason)


@pytest.mark.parametrize(
    ("made", "values"),
    [(one_long_list, 40_000_000), (many_long_lists, 9_000_000), (many_lists_of_a_dictionary, 100_000)],
)
def test_a_short_file_of_long_lists_is_not_read__D12(made: Callable[[], _TABLE], values: int, tmp_path: Path) -> None:
    rows, mib, faults = _read(made, tmp_path)
    assert mib < 64
    assert faults == [f"rows 1 to {rows} can't be read: a list in it may have {values:,} values"]


def test_the_largest_pages_of_many_columns_are_bounded_together__D12(tmp_path: Path) -> None:
    _, mib, faults = _read(many_columns_of_large_pages, tmp_path)
    assert mib < 64
    (fault,) = faults
    assert fault.startswith("rows 1 to 192 can't be read: the largest pages of its columns have 2")
    rows, mib, faults = _read(columns_that_just_fit, tmp_path)
    assert mib < 550  # such a page is in memory, and as much for its values
    assert len(faults) == rows


def _number(value: int) -> bytes:
    """As Thrift's compact protocol writes it: zigzag, seven bits in a byte."""
    value, out = value << 1, bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.parametrize("kind", [pytest.param(0, id="a page of data"), pytest.param(1, id="a page that is skipped")])
def test_a_page_that_claims_more_bytes_than_the_file_has_is_not_read__D12(kind: int, tmp_path: Path) -> None:
    out, path = io.BytesIO(), tmp_path / "some.parquet"
    table = pa.table({"id": ["m"], "due": [DUE_MS], "payload": ["x" * 99]})
    pq.write_table(table, out, compression="none", use_dictionary=False)
    data = out.getvalue()
    start = pq.read_metadata(out).row_group(0).column(2).data_page_offset
    size = b"\x15" + _number(6 + 4 + 99)  # in the header of the page: levels, and the text after its length
    assert data[start:].startswith(b"\x15" + _number(0) + size + size)
    claim = b"\x15" + _number((1 << 31) - 1)
    path.write_bytes(data[:start] + b"\x15" + _number(kind) + claim * 2 + data[start + 2 + 2 * len(size) :])
    mib, (fault,) = _read_file(path)
    assert mib < 100
    assert fault == "rows 1 to 1 can't be read: a page of it has 2,147,483,647 bytes, and the file ends before"


def lists_of_few_tags() -> dict[str, Any]:
    return {"payload": [[f"tag {(at * 7 + it) % 3_000}" for it in range(2)] for at in range(5_000)]}


def maps() -> dict[str, Any]:
    of = pa.map_(pa.string(), pa.string())
    return {"payload": pa.array([[("colour", f"{at % 3_000:09}"), ("size", "L")] for at in range(5_000)], of)}


def lists_of_long_texts() -> dict[str, Any]:
    return {"payload": [["x" * (50 + (at * 37 + it * 101) % 850) for it in range(8)] for at in range(2_000)]}


def lists_in_lists() -> dict[str, Any]:
    return {"payload": [[[float(at)] * 16] * 4 for at in range(30_000)]}


def many_columns() -> dict[str, Any]:
    return {f"c{column}": [column + at / 8 for at in range(10_000)] for column in range(150)}


@pytest.mark.parametrize("made", [lists_of_few_tags, maps, lists_of_long_texts, lists_in_lists, many_columns])
@pytest.mark.parametrize("how", [{}, {"data_page_version": "2.0", "data_page_size": 1 << 14}])
def test_an_ordinary_file_is_read_whatever_its_columns__D12(
    made: Callable[[], dict[str, Any]], how: dict[str, Any]
) -> None:
    columns = made()
    rows = len(next(iter(columns.values())))
    out = io.BytesIO()
    pq.write_table(pa.table({"id": ["m"] * rows, "due": [DUE_MS] * rows, **columns}), out, **how)
    found = read_parquet(out.getvalue())
    assert sum(isinstance(record.item, Message) for record in found) == rows


class _Counted(bytes):
    """Counts the values that are looked at."""

    looked_at = 0

    def __getitem__(self, at: Any) -> Any:
        self.looked_at += 1
        return super().__getitem__(at)


@pytest.mark.parametrize(
    ("lengths", "longest", "steps"),
    [
        ([0] * 1_000_000, 0, 0),
        ([3, 40, 7, *[1] * 10], 40, 2),
        ([0] * 1_100_000 + [9], 9, 1 << 20),
        ([0] * 1_100_000 + [70, 0, 50], 120, 1 << 20),
    ],
)
def test_the_longest_value_of_a_dictionary_is_found_or_bounded_in_few_steps__D12(
    lengths: list[int], longest: int, steps: int
) -> None:
    data = _Counted(b"".join(it.to_bytes(4, "little") + bytes(it) for it in lengths))
    assert longest_of(data, len(lengths)) == longest
    assert data.looked_at <= steps
