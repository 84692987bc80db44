"""No output is written over a store, an input or another output, by whatever path it is given (rule D2)."""

from pathlib import Path

import pytest

from tickwheel.delivery import WrongUsage
from tickwheel.delivery.command.outputs import check_outputs
from tickwheel.delivery.read.sources import find_sources

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store.db").touch()
    return tmp_path / "store.db"


@pytest.mark.parametrize("how", ["name", "symlink", "folder"])
@pytest.mark.parametrize("option", ["--to", "--summary", "--report", "--dead-letters", "--record"])
def test_a_file_of_the_store_is_no_output_by_whatever_path__D2(store: Path, how: str, option: str) -> None:
    other = store.with_name("other")
    if how == "symlink":
        other.symlink_to(store)
    elif how == "folder":
        other.symlink_to(store.parent)
        other = other / store.name
    else:
        other = store
    for outputs in ({option: other, "--store": store}, {"--store": store, option: other}):
        with pytest.raises(WrongUsage, match=r"is already the file of --.*: name another file"):
            check_outputs(outputs, ())


def test_also_where_there_is_no_store_yet__D2(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "store.db")
    with pytest.raises(WrongUsage, match=r"--summary: .* is already the file of --store"):
        check_outputs({"--store": link, "--summary": tmp_path / "store.db"}, ())


def test_an_input_is_no_output__D2(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").touch()
    (tmp_path / "other").symlink_to(tmp_path / "in.ndjson")
    with pytest.raises(WrongUsage, match="is already an input"):
        check_outputs({"--summary": tmp_path / "other"}, find_sources([str(tmp_path / "in.ndjson")]))


def test_files_that_differ_are_outputs__D2(store: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).touch()
    check_outputs({"--store": store, "--to": tmp_path / "a", "--summary": tmp_path / "b", "--report": None}, ())
