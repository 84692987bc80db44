"""The file of dead letters: made anew if it was moved or removed, and for its owner alone (rules D2, D10, D12)."""

import json
from pathlib import Path

import pytest

from tickwheel.delivery.base.errors import DeliveryFailed
from tickwheel.delivery.model.entries import Letter
from tickwheel.delivery.observe.dead_letters import to_file

pytestmark = pytest.mark.timeout(30)


def letter(line: int) -> Letter:
    return Letter("input", line, "it is bad", "a good one", b"{}")


def lines(path: Path) -> list[int]:
    return [json.loads(text)["line"] for text in path.read_text().splitlines()]


@pytest.mark.parametrize("is_there", [False, True])
def test_a_file_that_was_moved_or_removed_or_replaced_is_made_anew__D10(tmp_path: Path, is_there: bool) -> None:
    path, moved = tmp_path / "dead.ndjson", tmp_path / "dead.1"
    if is_there:
        path.touch(0o600)
    put = to_file(path)
    put([letter(1)])
    path.rename(moved)
    put([letter(2)])
    assert (lines(moved), lines(path)) == ([1], [2])
    path.unlink()
    put([letter(3), letter(4)])
    assert lines(path) == [3, 4]
    moved.rename(path)
    put([letter(5)])
    assert lines(path) == [1, 5]


def test_where_the_file_can_not_be_made_anew_no_letter_counts_as_written__D2_D10(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    put = to_file(folder / "dead.ndjson")
    put([letter(1)])
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(DeliveryFailed, match="No such file or directory"):
        put([letter(2)])
    folder.mkdir()
    put([letter(2)])
    assert lines(folder / "dead.ndjson") == [2]


def test_a_new_file_is_for_its_owner_alone_and_is_not_made_behind_a_link__D12(tmp_path: Path) -> None:
    path, link = tmp_path / "dead.ndjson", tmp_path / "link"
    to_file(path)([letter(1)])
    assert path.stat().st_mode & 0o777 == 0o600
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DeliveryFailed):
        to_file(link)([letter(1)])
    assert not (tmp_path / "elsewhere").exists()
