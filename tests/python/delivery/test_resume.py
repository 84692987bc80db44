"""D11: after a stop the next run goes on from there and reads no record twice; another file is read whole."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tickwheel.delivery.entries import Progress
from tickwheel.delivery.message import Columns
from tickwheel.delivery.sources import OpenSource, Source

FORMATS = ["ndjson", "csv", "parquet"]


def write(path: Path, ids: list[str]) -> None:
    if path.suffix == ".ndjson":
        path.write_text("".join(json.dumps({"id": id_, "due": 100000000005}) + "\n" for id_ in ids))
    elif path.suffix == ".csv":
        path.write_text("id,due,payload\n" + "".join(f'{id_},5,"two\nlines"\n' for id_ in ids))
    else:
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.table({"id": ids, "due": [5] * len(ids)}), path, row_group_size=2)


def ids_of(opened: OpenSource, most: int = 1000) -> tuple[list[str], int]:
    found: list[str] = []
    line = 0
    for record in opened:
        found.append(str(record.fields().id))
        line = record.line
        if len(found) == most:
            break
    return found, line


class Reader:
    """Reads a number of records of a file, like one run, and keeps what the next run needs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kept: dict[str, Progress] = {}

    def read(self, most: int = 1000) -> list[str]:
        opened = OpenSource(Source("in", self.path), Columns(), self.kept)
        found, line = ids_of(opened, most)
        if found:
            progress = opened.progress(line)
            assert progress is not None
            self.kept[progress.source] = progress
        return found


@pytest.fixture(params=FORMATS)
def reader(request: pytest.FixtureRequest, tmp_path: Path) -> Reader:
    return Reader(tmp_path / f"in.{request.param}")


def test_a_file_is_read_on_from_where_it_was_left__D11(reader: Reader) -> None:
    write(reader.path, ["a", "b", "c", "d", "e"])
    assert [reader.read(2), reader.read(1), reader.read(), reader.read()] == [["a", "b"], ["c"], ["d", "e"], []]


def test_another_file_under_the_same_name_is_read_whole__D11(reader: Reader) -> None:
    write(reader.path, ["a", "b", "c"])
    reader.read()
    write(reader.path, ["a", "x", "c", "d"])
    assert reader.read() == ["a", "x", "c", "d"]


def test_a_shorter_file_is_another_one__D11(reader: Reader) -> None:
    write(reader.path, ["a", "b", "c"])
    reader.read()
    write(reader.path, ["a", "b"])
    assert reader.read() == ["a", "b"]


@pytest.mark.parametrize("suffix", ["ndjson", "csv"])
def test_a_file_that_has_grown_is_read_on__D11(tmp_path: Path, suffix: str) -> None:
    reader = Reader(tmp_path / f"in.{suffix}")
    write(reader.path, ["a", "b"])
    assert reader.read() == ["a", "b"]
    write(reader.path, ["a", "b", "c"])
    assert reader.read() == ["c"]


def test_what_was_taken_is_not_parsed_again__D11(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tickwheel.delivery import ndjson

    reader = Reader(tmp_path / "in.ndjson")
    write(reader.path, ["a", "b", "c", "d"])
    reader.read(3)
    parsed: list[bytes] = []
    real: Callable[..., Any] = ndjson.fields_of
    monkeypatch.setattr(ndjson, "fields_of", lambda line, columns: (parsed.append(line.data), real(line, columns))[1])
    assert reader.read() == ["d"]
    assert len(parsed) == 1


def test_standard_input_has_no_past__D11() -> None:
    assert OpenSource(Source("-", None), Columns(), {}).progress(1) is None
