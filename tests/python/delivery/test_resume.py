"""D11: after a stop the next run goes on from there and reads no record twice; another file is read whole."""

import json
import os
from pathlib import Path

import pytest

from delivery.records import found_in
from tickwheel.delivery.model.entries import Progress
from tickwheel.delivery.model.message import Columns
from tickwheel.delivery.read import sources
from tickwheel.delivery.read.sources import OpenSource, Source

FORMATS = ["ndjson", "csv", "parquet"]


def write(path: Path, ids: list[str]) -> None:
    if path.suffix == ".ndjson":
        path.write_text("".join(json.dumps({"id": id_, "due": 100000000005}) + "\n" for id_ in ids))
    elif path.suffix == ".csv":
        path.write_text("id,due,payload\n" + "".join(f'{id_},1700000000005,"two\nlines"\n' for id_ in ids))
    else:
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.table({"id": ids, "due": [1_700_000_000_005] * len(ids)}), path, row_group_size=2)


class Reader:
    """Reads a number of records of a file, like one run, and keeps what the next run needs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kept: dict[str, Progress] = {}

    def read(self, most: int = 1000) -> list[str | None]:
        parts = [*OpenSource(Source("in", self.path), Columns(), self.kept)]
        found = [*found_in(part.records for part in parts)][:most]
        if found:
            progress = parts[-1].progress
            assert progress is not None
            self.kept[progress.source] = progress._replace(line=found[-1].line)
        return [each.id for each in found]


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


def test_standard_input_has_no_past__D11(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.write(writing, b'{"id": "a"}\n')
    os.close(writing)
    monkeypatch.setattr(sources, "_STDIN", reading)
    [part] = OpenSource(Source("-", None), Columns(), {})
    os.close(reading)
    assert (part.line, len(part.records), part.progress) == (1, 1, None)
