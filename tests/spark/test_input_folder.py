"""What is not read in an input folder is named in the log (rules S1, D2)."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tickwheel.delivery import WrongUsage
from tickwheel.delivery.model.message import Columns
from tickwheel.spark import parse_files
from tickwheel.spark.input_folder import File, InputFolder
from tickwheel.spark.inputs import Input
from tickwheel.spark.shape import HadoopFolder, LocalFolder

pytestmark = pytest.mark.timeout(180)

DAY_S = 86_400


class Watched:
    """A folder, and what Spark says that it has read of it."""

    def __init__(self, session: Any, folder: Path, columns: Columns | None = None, **more: bool) -> None:
        self.folder = folder / "in"
        self.folder.mkdir()
        self._query = folder / "query"
        (self._query / "sources/0").mkdir(parents=True)
        self._hadoop = HadoopFolder(session, str(self.folder))
        self._batch = 0
        self.looked = InputFolder("in", self._files, LocalFolder(self._query), columns or Columns(), **more)

    def _files(self) -> Iterator[File]:
        return (File(*it) for it in self._hadoop.files_below())

    def put(self, name: str, text: str = "", *, age_s: float = 0) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1_700_000_000 - age_s,) * 2)
        return path

    def read(self, *paths: Path) -> None:
        """Spark's list, as it writes it; the third batch is a summary."""
        lines = [
            json.dumps({"path": path.as_uri(), "timestamp": path.stat().st_mtime_ns // 10**6, "batchId": self._batch})
            for path in paths
        ]
        name = "2.compact" if self._batch == 2 else f"{self._batch}"
        LocalFolder(self._query).write(f"sources/0/{name}", "\n".join(["v1", *lines]).encode())
        self._batch += 1


def test_a_file_that_changes_after_it_was_read_is_named_once_for_each_change__D2(
    session: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(session, tmp_path)
    files = [watched.put(name) for name in ("a b.ndjson", "below/b.csv", "c.csv")]
    watched.looked.look()
    watched.read(files[0])
    watched.read(files[1])
    watched.read(*files)
    watched.looked.look()
    assert not caplog.messages
    for age_s in (-1, -1, -2):
        watched.put("a b.ndjson", "more", age_s=age_s)
        watched.looked.look()
    words = "files in in have changed since they were read, and are not read again: a b.ndjson. Give what is new in"
    assert [words in it for it in caplog.messages] == [True, True], caplog.messages


def test_what_is_skipped_is_named_once_with_the_reason__D2(
    session: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(session, tmp_path)
    new = watched.put("new.csv")
    for name in ("_x.csv", ".y.csv", "_temporary/z.csv", "_SUCCESS", ".a.csv.crc", "notes.txt"):
        watched.put(name)
    watched.put("old.csv", age_s=8 * DAY_S)
    watched.put("nearly.csv", age_s=6 * DAY_S)
    watched.read(new)
    for _ in range(2):
        watched.looked.look()
    assert sorted(caplog.messages) == [
        "not read in in, as the name begins with . or _: .y.csv, _temporary/z.csv, _x.csv",
        "not read in in, as the suffix is none of .ndjson, .jsonl, .csv, .parquet: notes.txt",
        "not read in in, as they are a week older than the newest file: old.csv. Touch them, and they are read",
    ]


def test_the_name_of_a_folder_is_no_column_and_one_of_a_field_is_an_error__D2(
    session: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(session, tmp_path, Columns(key="customer?"))
    watched.put("country=de/a.csv")
    for _ in range(2):
        watched.looked.look()
        watched.looked.check()
    assert caplog.messages == ["folders in in are no columns, and no message has their values: country=de"]
    with watched.looked.watched():
        watched.looked.check()
    watched.put("customer=7/a.csv")
    watched.looked.look()
    with pytest.raises(WrongUsage, match=r"folders in in have names of fields, .*: customer=7: write the field into"):
        watched.looked.check()


def test_the_timestamps_of_spark_s_own_parquet_are_read_with_a_zone_and_refused_without__D1_D2(
    session: Any, tmp_path: Path
) -> None:
    folder = str(tmp_path / "in")
    rows = session.sql("SELECT 'a' AS id, timestamp'2026-01-31 08:00:00' AS due, 'de' AS country, 7 AS what")
    rows.write.partitionBy("country").parquet(folder)
    files = [(path.as_uri(),) for path in (tmp_path / "in").rglob("part-*.parquet")]
    assert len(files) == 1
    paths = session.createDataFrame(files, "path STRING")
    [read] = parse_files(paths, Columns(zone="UTC")).collect()
    assert "/country=de/" in read.source
    assert (read.id, read.due_ms, bytes(read.payload)) == ("a", 1_769_846_400_000, b'{"what":7}')
    [refused] = parse_files(paths).collect()
    assert refused.reason.startswith("due has no zone: ")


def test_an_input_that_is_no_folder_has_nothing_to_tell__S1() -> None:
    assert not Input("table:t").is_files
    assert Input("in").is_files
