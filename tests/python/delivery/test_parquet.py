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

from delivery.records import DUE_MS, Found, found_in, read_parquet, rows_of_parquet
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.model.message import Columns, Message
from tickwheel.delivery.read.parquet import need_pyarrow
from tickwheel.delivery.read.sources import OpenSource, Source, find_sources


def parquet(columns: dict[str, Any], **how: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, **how)
    return out.getvalue()


def ids(found: list[Found]) -> list[str | None]:
    return [record.id for record in found]


ROWS: dict[str, list[Any]] = {
    "id": [f"m{at}" for at in range(5000)],
    "due": [DUE_MS + at for at in range(5000)],
    "x": [f"{at}" * 9 for at in range(5000)],
}


def test_rows_are_records_and_their_line_is_the_row__D1() -> None:
    found = read_parquet(parquet(ROWS, row_group_size=1300))
    assert [record.line for record in found] == list(range(1, 5001))
    assert ids(found) == ROWS["id"]
    assert found[7].item == Message("m7", None, DUE_MS + 7, msgspec.Raw(b'{"x":"777777777"}'))
    assert found[7].source == "test"


@pytest.mark.parametrize("how", [{}, {"compression": "zstd"}, {"use_dictionary": False}, {"version": "1.0"}])
def test_it_does_not_matter_how_the_file_was_written__D1(how: dict[str, Any]) -> None:
    columns = {
        "id": pa.array(["a", "b"]).dictionary_encode(),
        "due": pa.array([5_000_000, 6_000_001], pa.timestamp("ns" if how.get("version") != "1.0" else "us", "UTC")),
        "payload": pa.array([b"[1]", b"\xff"], pa.large_binary()),
    }
    first, second = (record.item for record in read_parquet(parquet(columns, **how)))
    assert isinstance(first, Message)
    assert isinstance(second, Message)
    assert first.payload == msgspec.Raw(b"[1]")
    assert second.payload == b"\xff"


def test_a_file_with_no_rows_holds_nothing__D1() -> None:
    assert read_parquet(parquet({"id": pa.array([], pa.string()), "due": pa.array([], pa.int64())})) == []


def test_a_bad_row_is_shown_as_json_and_the_rest_goes_on__D2() -> None:
    found = read_parquet(parquet({"id": ["a", None, "c"], "due": [DUE_MS, 6, None], "payload": ["1", "[2]", "3"]}))
    assert [(record.line, record.bad.reason, record.data) for record in found if record.bad] == [
        (2, "id is missing", b'{"due":6,"payload":[2]}'),
        (3, "due is missing", b'{"id":"c","payload":3}'),
    ]


@pytest.mark.parametrize("cells", [["a", "b"], []])
def test_a_schema_that_can_not_be_used_is_one_error_of_the_file_also_without_rows__D2(cells: list[str]) -> None:
    [record] = read_parquet(parquet({"name": pa.array(cells, pa.string())}), Columns(key="tail"))
    assert record.bad is not None
    assert (record.line, record.bad.reason) == (1, "the schema has no column id, tail, due")
    assert record.bad.allowed == "--id NAME and --key NAME and --due NAME, with a name of this file: name"


WHOLE = parquet(ROWS, row_group_size=1300, compression="none", use_dictionary=False)


@pytest.mark.parametrize(
    "file",
    [b"", b"PAR1", b"PAR1PAR1", b"id,due\na,5\n", b"x" * 100_000, WHOLE[:-1], WHOLE[: len(WHOLE) // 2], WHOLE[1:]],
    ids=["empty", "magic", "twice magic", "csv", "long", "cut by one", "cut in half", "beginning lost"],
)
def test_a_file_that_can_not_be_opened_is_one_dead_letter__D2(file: bytes) -> None:
    found = read_parquet(file)
    if len(found) > 1:  # without its beginning the footer can still be read, and every row group is broken
        assert file == WHOLE[1:]
        assert all(record.bad for record in found)
        return
    [record] = found
    assert record.line == 1
    assert record.bad is not None
    assert record.bad.reason.startswith("the file can't be read: ")
    assert record.bad.allowed


def with_negative_rows(file: bytes, group: int) -> bytes:
    """The file with the lowest bit flipped of the number of rows of one row group: in the footer 2 becomes -3."""
    for at in range(len(file) - 8 - int.from_bytes(file[-8:-4], "little"), len(file) - 8):
        changed = file[:at] + bytes([file[at] ^ 1]) + file[at + 1 :]
        try:
            metadata = pq.ParquetFile(io.BytesIO(changed)).metadata
            if metadata.num_row_groups > group and metadata.row_group(group).num_rows < 0:
                return changed
        except (pa.ArrowException, OSError, ValueError):
            continue
    raise AssertionError("no byte of the footer is the number of rows")


@pytest.mark.parametrize("group", [0, 1])
def test_a_file_with_a_negative_number_of_rows_is_one_dead_letter__D2(group: int) -> None:
    columns = {"id": ["a", "b", "c", "d", "e", "f"], "due": [DUE_MS] * 6}
    [record] = read_parquet(with_negative_rows(parquet(columns, row_group_size=2), group))
    assert record.bad is not None
    assert (record.line, record.bad.reason) == (1, f"the file can't be read: row group {group + 1} has -3 rows")


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_a_broken_row_group_costs_its_own_rows_only__D2(compression: str) -> None:
    file = bytearray(parquet(ROWS, row_group_size=1300, compression=compression, write_page_checksum=True))
    chunk = pq.ParquetFile(io.BytesIO(bytes(file))).metadata.row_group(1).column(2)
    file[chunk.dictionary_page_offset + chunk.total_compressed_size // 2] ^= 0xFF
    found = read_parquet(bytes(file))
    [bad] = [record for record in found if record.bad]
    assert bad.bad is not None
    assert bad.bad.reason.startswith(f"rows {bad.line} to 2600 can't be read: ")
    assert "CRC" in bad.bad.reason
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
        read_parquet(Broken(WHOLE))


def test_a_large_file_is_not_in_memory_as_a_whole__D12() -> None:
    rows = 300_000
    file = parquet({"id": [f"m{at}" for at in range(rows)], "due": [DUE_MS] * rows, "payload": ["x" * 100] * rows})
    read = rows_of_parquet(file)
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
    file = parquet({"id": ["a"] * 20_000, "due": [DUE_MS] * 20_000, "payload": places}, store_schema=False)
    assert len(file) < 1_000_000
    read = rows_of_parquet(file)
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

    file = parquet({"id": [f"m{at}" * 20 for at in range(100_000)], "due": [DUE_MS] * 100_000}, row_group_size=5_000)
    stream = Counting(file)
    next(rows_of_parquet(stream))
    assert stream.taken < len(file) / 4


def opened(source: Source, before: Any = {}) -> tuple[list[str | None], Any]:  # noqa: B006
    """The ids in a source, and the progress after the last one."""
    parts = [*OpenSource(source, Columns(), before)]
    return ids([*found_in(part.records for part in parts)]), parts[-1].progress if parts else None


def test_a_folder_may_hold_parquet_files_and_broken_ones_among_them__D11(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(parquet({"id": ["a", "b"], "due": [DUE_MS, DUE_MS]}))
    (tmp_path / "b.PARQUET").write_bytes(b"broken")
    (tmp_path / "c.csv").write_bytes(b"id,due\nc,%d\n" % DUE_MS)
    assert [opened(source)[0] for source in find_sources([str(tmp_path)])] == [["a", "b"], [None], ["c"]]


def test_a_file_is_read_on_where_an_earlier_run_stopped__D11(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet({"id": ["a", "b", "c"], "due": [DUE_MS] * 3}))
    [source] = find_sources([str(path)])
    found, progress = opened(source)
    assert len(found) == progress.line == 3
    before = {str(path.resolve()): progress._replace(line=2)}
    assert opened(source, before)[0] == ["c"]
    path.write_bytes(parquet({"id": ["x", "b", "c"], "due": [DUE_MS] * 3}))
    assert opened(source, before)[0] == ["x", "b", "c"]


def test_rows_of_a_schema_that_could_not_be_used_are_read_once_it_can__D11(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet({"flight": ["a", "b"], "due": [DUE_MS] * 2}))
    [source] = find_sources([str(path)])
    found, progress = opened(source)
    assert found == [None]
    parts = OpenSource(source, Columns(id="flight"), {str(path.resolve()): progress})
    assert ids([*found_in(part.records for part in parts)]) == ["a", "b"]


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
        read_parquet(WHOLE)


def test_the_other_formats_need_no_pyarrow() -> None:
    import subprocess

    code = "import sys; from tickwheel.delivery.read import parquet, sources; assert 'pyarrow' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parent).returncode == 0
