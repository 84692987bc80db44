"""No output is written over a store, an input or another output, by whatever name it is given (rule D2)."""

import os
from pathlib import Path

import pytest

from tickwheel.delivery import WrongUsage
from tickwheel.delivery.command.outputs import check_outputs
from tickwheel.delivery.read.sources import find_sources

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for name in ("store.db", "store.db-wal", "store.db-shm"):
        (tmp_path / name).touch()
    return tmp_path / "store.db"


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("how", ["name", "symlink", "hard link", "folder"])
@pytest.mark.parametrize("option", ["--to", "--summary", "--report", "--dead-letters", "--record"])
def test_a_file_of_the_store_is_no_output_by_whatever_name__D2(store: Path, suffix: str, how: str, option: str) -> None:
    file, other = store.with_name(f"{store.name}{suffix}"), store.with_name("other")
    if how == "symlink":
        other.symlink_to(file)
    elif how == "hard link":
        os.link(file, other)
    elif how == "folder":
        other.symlink_to(store.parent)
        other = other / file.name
    else:
        other = file
    for outputs in ({option: other, "--store": store}, {"--store": store, option: other}):
        with pytest.raises(WrongUsage, match=r"is already the file of --.*: name another file"):
            check_outputs(outputs, ())


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
def test_also_where_there_is_no_store_yet__D2(tmp_path: Path, suffix: str) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "store.db")
    with pytest.raises(WrongUsage, match=r"--summary: .* is already the file of --store"):
        check_outputs({"--store": link, "--summary": tmp_path / f"store.db{suffix}"}, ())


def test_a_hard_link_of_an_input_is_no_output__D2(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").touch()
    os.link(tmp_path / "in.ndjson", tmp_path / "other")
    with pytest.raises(WrongUsage, match="is already an input"):
        check_outputs({"--summary": tmp_path / "other"}, find_sources([str(tmp_path / "in.ndjson")]))


def test_files_that_differ_are_outputs__D2(store: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).touch()
    check_outputs({"--store": store, "--to": tmp_path / "a", "--summary": tmp_path / "b", "--report": None}, ())


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal", ".lock"])
def test_a_name_that_sqlite_uses_beside_a_file_is_no_output__D2(store: Path, suffix: str) -> None:
    other = store.with_name(f"store.db{suffix}")
    check_outputs({"--to": other}, ())  # the file beside it is no database
    store.write_bytes(b"SQLite format 3\0 and so on")
    for option in ("--to", "--store", "--record"):
        with pytest.raises(WrongUsage, match=rf"{option}: .* is the name of a file that SQLite keeps for .*store\.db"):
            check_outputs({option: other}, ())
    check_outputs({"--to": store.with_name(f"another{suffix}")}, ())
