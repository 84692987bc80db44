"""A checkpoint goes on with its own input; what is missing in Spark's logs is told before Spark starts (rule S4)."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tickwheel.delivery import WrongUsage
from tickwheel.spark.same_source import (
    Begun,
    check_files,
    check_logs,
    check_source,
    gone,
    keep_source,
)
from tickwheel.spark.shape import Folder, HadoopFolder, LocalFolder

FILES, TICKS = '{"logOffset":1}', '{"offset":64,"timestamp":1}'


class Topic:
    name = "t"

    def begin(self) -> Mapping[int, int]:
        return {0: 3, 1: 0, 2: 0}


@pytest.fixture
def query(tmp_path: Path) -> Path:
    """Spark's logs after two micro-batches of a topic, and one that was begun."""
    for number, read in enumerate((4, 8, 12)):
        for log in ("offsets", "commits") if number < 2 else ("offsets",):
            (tmp_path / log).mkdir(exist_ok=True)
            offsets = json.dumps({"t": {"0": read, "1": 1}})
            (tmp_path / log / str(number)).write_text("\n".join(["v1", "{}", *([offsets, TICKS] * (log == "offsets"))]))
    return tmp_path


def test_another_input_is_refused_unless_it_may_change_and_is_the_one_from_then_on__S4(tmp_path: Path) -> None:
    kept = LocalFolder(tmp_path)
    check_source(kept, "topic 1")  # a new checkpoint is for any
    keep_source(kept, "topic 1")
    keep_source(kept, "topic 1")
    check_source(kept, "topic 1")
    for wrong in ("topic 2", "topic 3"):
        with pytest.raises(WrongUsage, match=f"it is {wrong}, and was topic 1. Read it with a new checkpoint"):
            check_source(kept, wrong)
    check_source(kept, "topic 2", may_change=True)
    keep_source(kept, "topic 2")
    check_source(kept, "topic 2")
    assert sorted(it.name for it in tmp_path.iterdir()) == ["source.1.json", "source.2.json"]


def test_records_that_are_gone_are_those_after_the_last_completed_micro_batch__S4(query: Path) -> None:
    class Later(Topic):
        def begin(self) -> Mapping[int, int]:
            return {0: 11, 1: 1, 2: 0}

    assert gone(LocalFolder(query), Topic()) == []
    assert gone(LocalFolder(query), Later()) == ["8 to 10 of partition 0"]


def empty(log: str, number: int) -> Callable[[Path], object]:
    return lambda query: (query / log / str(number)).write_text("")


def without_sources(query: Path) -> None:
    for offsets in (query / "offsets").iterdir():
        offsets.write_text("\n".join(["v1", "{}", FILES, TICKS]))


def check(query: Folder) -> None:
    """Of a checkpoint in which no second micro-batch was completed."""
    check_logs(LocalFolder(Path("nothing is here")), query)


LOST = {
    "offsets": (empty("offsets", 2), "offsets/2 is empty, as after a loss of power: restore the whole checkpoint"),
    "commit": (empty("commits", 1), "commits/1 is empty, as after a loss of power: restore the whole checkpoint"),
    "sources": (without_sources, r"sources/0 has lost the list of the files that were read: restore it from a copy"),
}


@pytest.mark.parametrize("kind", LOST)
def test_a_log_that_is_damaged_is_told_with_the_step_that_loses_nothing__S4(query: Path, kind: str) -> None:
    check(LocalFolder(query))
    damage, words = LOST[kind]
    damage(query)
    with pytest.raises(WrongUsage, match=words):
        check(LocalFolder(query))


def test_a_log_that_is_no_text_is_told__S4(query: Path) -> None:
    for number in (1, 2):
        (query / f"offsets/{number}").write_bytes(b"v1\n\xff")
    for read in (check, lambda it: gone(it, Topic())):
        with pytest.raises(WrongUsage, match=r"offsets/[12] is damaged \('utf-8' codec .*\): restore it from a copy"):
            read(LocalFolder(query))


def test_files_that_a_loss_of_power_left_empty_are_named_at_once__S4(query: Path, session: Any) -> None:
    for log, number in (("offsets", 2), ("commits", 1)):
        empty(log, number)(query)
    for folder in (LocalFolder(query), HadoopFolder(session, str(query))):
        with pytest.raises(WrongUsage, match="offsets/2 and commits/1 are empty, as after a loss of power"):
            check(folder)


def test_a_list_of_files_is_there_as_one_file_or_many__S4(query: Path) -> None:
    without_sources(query)
    (query / "sources" / "0").mkdir(parents=True)
    for name in ("1", "1.compact"):
        (query / "sources" / "0" / name).write_text("v1")
        check(LocalFolder(query))
        (query / "sources" / "0" / name).unlink()


def test_a_file_that_is_gone_before_it_was_read_is_named__S4_D2(query: Path) -> None:
    folder = LocalFolder(query)
    for number in range(3):
        (query / f"offsets/{number}").write_text("\n".join(["v1", "{}", f'{{"logOffset":{number * 2 + 1}}}', TICKS]))
    listed = [{"path": f"file:///in/{number}%20a", "timestamp": 7, "batchId": number} for number in range(7)]
    (query / "sources/0").mkdir(parents=True)

    def write(name: str, *entries: object) -> None:
        (query / "sources/0" / name).write_text("\n".join(["v1", *map(json.dumps, entries)]))

    def gone_but(*there: int) -> str:
        try:
            check_files(folder, [f"file:///in/{number} a" for number in there].__contains__)
        except WrongUsage as error:
            return str(error)
        return ""

    for number, entry in enumerate(listed):
        write(str(number), entry)
    for _ in ("one by one", "summed up"):
        assert gone_but(4, 5, 6) == ""
        assert "files are gone that were seen and not read: file:///in/5 a: put them back" in gone_but(0, 1, 2, 3, 4, 6)
        write("4.compact", *listed[:5])
        (query / "sources/0/3").unlink(missing_ok=True)
        (query / "sources/0/4").unlink(missing_ok=True)
    (query / "commits/2").write_text("v1")
    assert "file:///in/6 a: put" in gone_but(), "it was noted, and its micro-batch had not begun"
    assert gone_but(6) == ""
    for log in ("offsets/0", "offsets/1", "offsets/2", "commits/2", "commits/1", "commits/0"):
        (query / log).unlink()
    assert "file:///in/0 a, " in gone_but(), "the first micro-batch was not complete"


def test_a_checkpoint_that_has_lost_its_query_is_refused__S4(tmp_path: Path) -> None:
    folder, query = LocalFolder(tmp_path), LocalFolder(tmp_path / "query")
    begun = Begun(folder)
    for progress in (None, {"batchId": 0}):
        begun(progress)
    check_logs(folder, query)  # a first micro-batch that did not end, or only that
    begun({"batchId": 1})
    Begun(folder)({"batchId": 7})
    assert [*folder.names()] == ["begun"]
    with pytest.raises(
        WrongUsage, match=r"query has lost offsets, and without them Spark begins anew: what the checkpoint"
    ):
        check_logs(folder, query)
    (tmp_path / "query/offsets").mkdir(parents=True)
    query.write("offsets/1", b"v1")
    check_logs(folder, query)


@pytest.mark.parametrize("left", ["commits/3", "state/0/1"])
def test_one_of_an_older_version_too_if_a_part_of_it_is_left__S4(tmp_path: Path, left: str) -> None:
    folder, query = LocalFolder(tmp_path), LocalFolder(tmp_path / "query")
    (tmp_path / "query" / left).parent.mkdir(parents=True)
    (tmp_path / "query" / left).write_text("v1")
    with pytest.raises(WrongUsage, match="has lost offsets, and without them Spark begins anew"):
        check_logs(folder, query)


def test_commits_without_their_offsets_are_refused__S4(query: Path) -> None:
    (query / "offsets/2").unlink()
    check(LocalFolder(query))
    (query / "commits/2").write_text("v1\n{}")
    with pytest.raises(WrongUsage, match="has lost offsets, and without them Spark begins anew"):
        check(LocalFolder(query))


def test_the_note_of_a_second_micro_batch_is_tried_again_with_the_next__S4(tmp_path: Path) -> None:
    class Broken(LocalFolder):
        writes = 0

        def write(self, name: str, data: bytes) -> None:
            self.writes += 1
            if self.writes == 1:
                raise OSError("the store is away")
            super().write(name, data)

    folder = Broken(tmp_path)
    begun = Begun(folder)
    for batch, writes in ((1, 1), (1, 1), (2, 2), (2, 2), (3, 2)):
        begun({"batchId": batch})
        assert folder.writes == writes
    assert [*folder.names()] == ["begun"]
