"""Parquet files are read in bounded memory: by what the footer says of a row group, and by small steps in it (D8)."""

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
from tickwheel.delivery.read import parquet

MIB = 1 << 20
_TABLE = tuple[dict[str, Any], dict[str, Any]]


def many_of_a_dictionary() -> _TABLE:
    payloads = pa.DictionaryArray.from_arrays(pa.array([0] * 200), pa.array(["x" * (MIB)]))
    return {"payload": payloads}, {"store_schema": False}


def many_of_a_dictionary_that_stays_one() -> _TABLE:
    return {"payload": many_of_a_dictionary()[0]["payload"]}, {"store_schema": True}


def prefixes() -> _TABLE:
    how = {"use_dictionary": False, "column_encoding": {"payload": "DELTA_BYTE_ARRAY"}}
    return {"payload": ["x" * (MIB)] * 200}, how


def wide_nulls() -> _TABLE:
    return {"payload": pa.nulls(200, pa.binary(MIB))}, {}


def a_few_large_rows_among_small_ones() -> _TABLE:
    payloads = ["y"] * 20_000 + ["x" * (MIB)] * 200
    return {"payload": payloads}, {"use_dictionary": False, "write_batch_size": 1}


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
    faults = [getattr(item, "reason", None) for records, _ in parts for item in records.to_list()]
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
    read = subprocess.run([sys.executable, "-c", _SCRIPT, path], capture_output=True, check=True, timeout=100)
    mib, faults = json.loads(read.stdout)
    return rows, mib, faults


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (many_of_a_dictionary, "the payload has 1,048,578 bytes"),
        (many_of_a_dictionary_that_stays_one, "the payload has 1,048,578 bytes"),
        (prefixes, "the payload has 1,048,578 bytes"),
        (wide_nulls, ""),
        (a_few_large_rows_among_small_ones, "the payload has 1,048,578 bytes"),
    ],
)
def test_a_short_file_of_rows_as_large_as_a_payload_takes_no_more_than_256_mib__D12(
    made: Callable[[], _TABLE], reason: str, tmp_path: Path
) -> None:
    rows, mib, faults = _read(made, tmp_path)
    assert mib < 256
    assert len(faults) == rows
    assert (faults[-1] or "").startswith(reason)


def test_a_file_with_a_row_group_that_is_too_large_by_its_footer_is_one_error_and_no_row_is_read__D8(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.BytesIO()
    table = pa.table(
        {"id": [f"m{at}" for at in range(4)], "due": [DUE_MS] * 4, "payload": ["x", "x", "y" * 1_000_000, "z"]}
    )
    pq.write_table(table, out, compression="zstd", use_dictionary=False, row_group_size=2)
    size = pq.read_metadata(out).row_group(1).total_byte_size
    assert size > 1_000_000 > len(out.getvalue())
    monkeypatch.setattr(parquet, "_MOST_OF_A_GROUP", size)
    assert [record.id for record in read_parquet(out.getvalue())] == ["m0", "m1", "m2", "m3"]
    monkeypatch.setattr(parquet, "_MOST_OF_A_GROUP", size - 1)
    [record] = read_parquet(out.getvalue())
    assert record.bad is not None
    assert (record.line, record.bad.reason) == (1, f"row group 2 has {size:,} bytes before compression")
    most = f"at most {size - 1:,}: write the file with smaller row groups; no row of it is read"
    assert record.bad.allowed == most


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
