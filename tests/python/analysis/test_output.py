"""The folder of an analysis: no other file is overwritten, and old files stay until all new ones exist (rule S6)."""

import shutil
from pathlib import Path

import pytest

from tickwheel.analysis.output import check_out, replacing
from tickwheel.delivery.base.errors import DeliveryFailed, WrongUsage

pytestmark = pytest.mark.timeout(30)

NAMES = ("a.parquet", "b.parquet")


def write(out: Path, text: str) -> None:
    with replacing(out, NAMES, "it") as new:
        for name in NAMES:
            (new / name).mkdir()
            (new / name / f"part-{text}").write_text(text)
        (new / "index.html").write_text(text)


def found(out: Path) -> dict[str, str]:
    return {str(it.relative_to(out)): it.read_text() for it in out.rglob("*") if it.is_file() and it.name[0] != "."}


def expected(text: str) -> dict[str, str]:
    return {"index.html": text} | {f"{name}/part-{text}": text for name in NAMES}


@pytest.mark.parametrize("is_there", [False, True])
def test_a_new_folder_an_empty_one_and_its_own_are_written__S6(tmp_path: Path, is_there: bool) -> None:
    out = tmp_path if is_there else tmp_path / "new"
    write(out, "first")
    assert found(out) == expected("first")
    write(out, "second")
    assert found(out) == expected("second")
    shutil.rmtree(out / "b.parquet")
    (out / "index.html").unlink()
    write(out, "third")
    assert found(out) == expected("third")


@pytest.mark.parametrize("name", ["index.html", "a.parquet", "notes.txt", ".git", "unfinished"])
def test_a_folder_of_anything_else_is_refused_and_left_alone__S6(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(WrongUsage, match=rf"holds other things \({name}\)"):
        write(tmp_path, "x")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_its_own_folder_with_something_added_is_refused__S6(tmp_path: Path) -> None:
    write(tmp_path, "first")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(WrongUsage, match=r"holds other things \(notes.txt\)"):
        write(tmp_path, "second")
    assert found(tmp_path) == expected("first") | {"notes.txt": "mine"}


def test_a_file_and_a_missing_parent_are_wrong_usage__D2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(WrongUsage, match="is not a folder"):
        check_out(tmp_path / "file", NAMES, "it")
    with pytest.raises(WrongUsage, match="there is no folder"):
        check_out(tmp_path / "none" / "out", NAMES, "it")


def test_one_that_fails_leaves_what_was_there__S6(tmp_path: Path) -> None:
    write(tmp_path, "first")

    def fail() -> None:
        with replacing(tmp_path, NAMES, "it") as new:
            (new / "a.parquet").mkdir()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert found(tmp_path) == expected("first")
    assert not (tmp_path / "unfinished").exists()
    write(tmp_path, "second")
    assert found(tmp_path) == expected("second")


def test_what_cant_be_written_says_so__D2(tmp_path: Path) -> None:
    def fail() -> None:
        with replacing(tmp_path / "out", NAMES, "it") as new:
            (new / "none" / "a").write_text("x")

    with pytest.raises(DeliveryFailed, match=r".* can't be written: No such file"):
        fail()
