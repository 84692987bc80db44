"""Parquet files: read in pieces, rows counted, and a broken part costs only its own rows."""

import io
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tickwheel.delivery.errors import BadRecord, WrongUsage
from tickwheel.delivery.message import Columns, Message, check
from tickwheel.delivery.parquet import need_pyarrow, read_parquet
from tickwheel.delivery.record import Record
from tickwheel.delivery.sources import OpenSource, find_sources


def parquet(columns: dict[str, Any], **how: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, **how)
    return out.getvalue()


def records(file: bytes, columns: Columns | None = None) -> list[Record]:
    return list(read_parquet("test.parquet", io.BytesIO(file), columns or Columns()))


def ids(found: list[Record]) -> list[str | None]:
    return [None if isinstance(record.content, BadRecord) else str(record.content.id) for record in found]


ROWS: dict[str, list[Any]] = {
    "id": [f"m{at}" for at in range(5000)],
    "due": list(range(5000)),
    "x": [f"{at}" * 9 for at in range(5000)],
}


def test_rows_are_records_and_their_line_is_the_row__D1() -> None:
    found = records(parquet(ROWS, row_group_size=1300))
    assert [record.line for record in found] == list(range(1, 5001))
    assert ids(found) == ROWS["id"]
    message = check(found[7].fields(), Columns(), now_ns=0)
    assert message == Message("m7", None, 7, msgspec.Raw(b'{"x":"777777777"}'))
    assert (found[7].source, found[7].data) == ("test.parquet", b'{"id":"m7","due":7,"x":"777777777"}')


@pytest.mark.parametrize("how", [{}, {"compression": "zstd"}, {"use_dictionary": False}, {"version": "1.0"}])
def test_it_does_not_matter_how_the_file_was_written__D1(how: dict[str, Any]) -> None:
    columns = {
        "id": pa.array(["a", "b"]).dictionary_encode(),
        "due": pa.array([5_000_000, 6_000_001], pa.timestamp("ns" if how.get("version") != "1.0" else "us", "UTC")),
        "payload": pa.array([b"[1]", b"\xff"], pa.large_binary()),
    }
    first, second = (check(record.fields(), Columns(), now_ns=0) for record in records(parquet(columns, **how)))
    assert isinstance(first, Message)
    assert isinstance(second, Message)
    assert first.payload == msgspec.Raw(b"[1]")
    assert second.payload == b"\xff"


def test_a_file_with_no_rows_holds_nothing__D1() -> None:
    assert records(parquet({"id": pa.array([], pa.string())})) == []
    assert records(parquet({"name": pa.array([], pa.string())})) == []


def test_a_bad_row_is_shown_as_json_and_the_rest_goes_on__D2() -> None:
    found = records(parquet({"id": ["a", None, "c"], "due": [5, 6, None], "payload": ["1", "[2]", "3"]}))
    reasons = []
    for record in found:
        try:
            check(record.fields(), Columns(), now_ns=0)
        except BadRecord as bad:
            reasons.append((record.line, bad.reason, record.data))
    assert reasons == [
        (2, "id is missing", b'{"due":6,"payload":[2]}'),
        (3, "due is missing", b'{"id":"c","payload":3}'),
    ]


def test_with_a_schema_that_can_not_be_used_every_row_says_so__D2() -> None:
    found = records(parquet({"name": ["a", "b"]}))
    assert [(record.line, str(record.content), record.data) for record in found] == [
        (1, "the schema has no column id (allowed: of this file: name)", b'{"name":"a"}'),
        (2, "the schema has no column id (allowed: of this file: name)", b'{"name":"b"}'),
    ]


WHOLE = parquet(ROWS, row_group_size=1300, compression="none", use_dictionary=False)


@pytest.mark.parametrize(
    "file",
    [b"", b"PAR1", b"PAR1PAR1", b"id,due\na,5\n", b"x" * 100_000, WHOLE[:-1], WHOLE[: len(WHOLE) // 2], WHOLE[1:]],
    ids=["empty", "magic", "twice magic", "csv", "long", "cut by one", "cut in half", "beginning lost"],
)
def test_a_file_that_can_not_be_opened_is_one_dead_letter__D2(file: bytes) -> None:
    found = records(file)
    if len(found) > 1:  # without its beginning the footer can still be read, and every row group is broken
        assert file == WHOLE[1:]
        assert all(isinstance(record.content, BadRecord) for record in found)
        return
    [record] = found
    assert record.line == 1
    assert isinstance(record.content, BadRecord)
    assert record.content.reason.startswith("the file can't be read: ")
    assert record.content.allowed


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_a_broken_row_group_costs_its_own_rows_only__D2(compression: str) -> None:
    file = bytearray(parquet(ROWS, row_group_size=1300, compression=compression, write_page_checksum=True))
    chunk = pq.ParquetFile(io.BytesIO(bytes(file))).metadata.row_group(1).column(2)
    file[chunk.dictionary_page_offset + chunk.total_compressed_size // 2] ^= 0xFF
    found = records(bytes(file))
    [bad] = [record for record in found if isinstance(record.content, BadRecord)]
    assert isinstance(bad.content, BadRecord)
    assert bad.content.reason.startswith(f"rows {bad.line} to 2600 can't be read: ")
    assert "CRC" in bad.content.reason
    assert 1300 < bad.line <= 2600
    assert [id_ for id_ in ids(found) if id_] == ROWS["id"][: bad.line - 1] + ROWS["id"][2600:]
    assert [record.line for record in found] == [*range(1, bad.line + 1), *range(2601, 5001)]


def test_what_the_operating_system_says_ends_the_run__D2() -> None:
    class Broken(io.BytesIO):
        reads = 0

        def read(self, size: int | None = -1) -> bytes:
            self.reads += 1
            if self.reads > 2:
                raise OSError(5, "Input/output error")
            return super().read(size)

    with pytest.raises(OSError, match="Input/output error"):
        list(read_parquet("test.parquet", Broken(WHOLE), Columns()))


def test_a_large_file_is_not_in_memory_as_a_whole__D12() -> None:
    rows = 300_000
    file = parquet({"id": [f"m{at}" for at in range(rows)], "due": [5] * rows, "payload": ["x" * 100] * rows})
    read = read_parquet("test.parquet", io.BytesIO(file), Columns())
    next(read)
    arrow_before = pa.total_allocated_bytes()
    tracemalloc.start()
    arrow_peak = 0
    count = 1
    for record in read:
        count += 1
        if record.line % 1000 == 0:
            arrow_peak = max(arrow_peak, pa.total_allocated_bytes() - arrow_before)
        if record.line == 100_000:
            break
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 100_000
    assert peak < 10 << 20
    assert arrow_peak < 30 << 20


def test_a_large_value_in_every_row_does_not_fill_the_memory__D12() -> None:
    places = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000), pa.array(["x" * 500_000]))
    file = parquet({"id": ["a"] * 20_000, "due": [5] * 20_000, "payload": places}, store_schema=False)
    assert len(file) < 1_000_000
    read = read_parquet("test.parquet", io.BytesIO(file), Columns())
    for _ in range(200):
        next(read)
    assert pa.total_allocated_bytes() < 200 << 20


def test_the_first_rows_are_there_before_the_last_are_read__D12() -> None:
    class Counting(io.BytesIO):
        taken = 0

        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            self.taken += len(data)
            return data

    file = parquet({"id": [f"m{at}" * 20 for at in range(100_000)], "due": [5] * 100_000}, row_group_size=5_000)
    stream = Counting(file)
    next(read_parquet("test.parquet", stream, Columns()))
    assert stream.taken < len(file) / 4


def test_a_folder_may_hold_parquet_files_and_broken_ones_among_them__D11(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(parquet({"id": ["a", "b"], "due": [5, 6]}))
    (tmp_path / "b.PARQUET").write_bytes(b"broken")
    (tmp_path / "c.csv").write_bytes(b"id,due\nc,5\n")
    found = [[*OpenSource(source, Columns(), {})] for source in find_sources([str(tmp_path)])]
    assert [ids(records) for records in found] == [["a", "b"], [None], ["c"]]


def test_a_file_is_read_on_where_an_earlier_run_stopped__D11(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet({"id": ["a", "b", "c"], "due": [5, 6, 7]}))
    [source] = find_sources([str(path)])
    opened = OpenSource(source, Columns(), {})
    assert len(list(opened)) == 3
    progress = opened.progress(2)
    assert progress is not None
    before = {str(path.resolve()): progress}
    assert ids(list(OpenSource(source, Columns(), before))) == ["c"]
    path.write_bytes(parquet({"id": ["x", "b", "c"], "due": [5, 6, 7]}))
    assert ids(list(OpenSource(source, Columns(), before))) == ["x", "b", "c"]


def test_without_pyarrow_nothing_is_read_at_all__D2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "a.csv").write_bytes(b"id,due\n")
    (tmp_path / "b.parquet").write_bytes(WHOLE)
    with pytest.raises(WrongUsage, match="pyarrow is not installed"):
        find_sources([str(tmp_path)])


def test_without_pyarrow_the_error_says_what_to_install__D2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(WrongUsage, match=r"run pip install 'tickwheel\[parquet\]'"):
        need_pyarrow()
    with pytest.raises(WrongUsage):
        records(WHOLE)


def test_the_other_formats_need_no_pyarrow() -> None:
    import subprocess

    code = "import sys; from tickwheel.delivery import parquet, sources; assert 'pyarrow' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parent).returncode == 0
