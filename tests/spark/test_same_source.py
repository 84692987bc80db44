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
    start_anew,
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


def test_another_input_is_refused_until_it_is_chosen_and_is_the_one_from_then_on__S4(tmp_path: Path) -> None:
    kept = LocalFolder(tmp_path)
    assert not check_source(kept, "topic 1", None), "a new checkpoint is for any"
    keep_source(kept, "topic 1")
    keep_source(kept, "topic 1")
    assert not check_source(kept, "topic 1", None)
    for wrong in ("topic 2", "topic 3"):
        with pytest.raises(WrongUsage, match=f"it is {wrong}, and was topic 1. With --changed-source start it is read"):
            check_source(kept, wrong, None)
    assert check_source(kept, "topic 2", "go-on")
    keep_source(kept, "topic 2")
    assert not check_source(kept, "topic 2", None)
    assert sorted(it.name for it in tmp_path.iterdir()) == ["source.1.json", "source.2.json"]


@pytest.mark.parametrize("is_in_the_middle", [False, True])
def test_a_topic_is_read_from_its_start_also_if_the_first_try_was_cut_off__S4(
    query: Path, is_in_the_middle: bool
) -> None:
    if is_in_the_middle:
        (query / "offsets" / "1").unlink()
    start_anew(LocalFolder(query), Topic())
    assert sorted(it.name for it in (query / "offsets").iterdir()) == ["0", "1"]
    version, _, topic, ticks = (query / "offsets" / "1").read_text().split("\n")
    assert (version, json.loads(topic), ticks) == ("v1", {"t": {"0": 3, "1": 0, "2": 0}}, TICKS)


def test_a_topic_without_offsets_to_begin_from_is_told_with_what_to_do__S4(query: Path) -> None:
    for number in (0, 1):
        (query / "offsets" / str(number)).unlink()
    with pytest.raises(WrongUsage, match="offsets/1 is missing, as after an earlier try that was killed: restore it"):
        start_anew(LocalFolder(query), Topic())


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
    "offsets": (
        empty("offsets", 2),
        r"offsets/2 is empty, as after a loss of power: remove in .* offsets/2, and run again",
    ),
    "commit": (
        empty("commits", 1),
        r"commits/1 is empty, as after a loss of power: remove in .* commits/1, and run again",
    ),
    "sources": (without_sources, r"sources/0 has lost the list of the files that were read: restore it from a copy"),
}


@pytest.mark.parametrize("kind", LOST)
def test_a_log_that_is_damaged_is_told_with_the_step_that_loses_nothing__S4(query: Path, kind: str) -> None:
    check(LocalFolder(query))
    damage, words = LOST[kind]
    damage(query)
    with pytest.raises(WrongUsage, match=words):
        check(LocalFolder(query))


def test_an_empty_last_offset_whose_commit_is_there_goes_with_the_commit__S4(query: Path) -> None:
    (query / "offsets" / "2").unlink()
    empty("offsets", 1)(query)
    (query / "offsets" / ".1.crc").write_text("")
    with pytest.raises(
        WrongUsage, match=r"offsets/1 is empty, .* offsets/1 and offsets/.1.crc and commits/1, and run again"
    ):
        check(LocalFolder(query))


def test_an_empty_first_offset_goes_with_the_state_without_which_spark_begins_anew__S4(query: Path) -> None:
    for log in ("offsets/1", "offsets/2", "commits/1"):
        (query / log).unlink()
    empty("offsets", 0)(query)
    (query / "state/0").mkdir(parents=True)
    with pytest.raises(WrongUsage, match=r"offsets/0 is empty, .* offsets/0 and commits/0 and state, and run again"):
        check(LocalFolder(query))


def test_a_log_that_is_no_text_is_told__S4(query: Path) -> None:
    for number in (1, 2):
        (query / f"offsets/{number}").write_bytes(b"v1\n\xff")
    for read in (check, lambda it: gone(it, Topic()), lambda it: start_anew(it, Topic())):
        with pytest.raises(WrongUsage, match=r"offsets/[12] is damaged \('utf-8' codec .*\): restore it from a copy"):
            read(LocalFolder(query))


def test_all_files_that_a_loss_of_power_left_empty_are_named_at_once_with_their_checksums__S4(
    query: Path, session: Any
) -> None:
    for log, number in (("offsets", 2), ("commits", 1)):
        empty(log, number)(query)
        (query / log / f".{number}.crc").write_text("")
    names = "offsets/2 and offsets/.2.crc and commits/1 and commits/.1.crc"
    for folder in (LocalFolder(query), HadoopFolder(session, str(query))):
        with pytest.raises(
            WrongUsage, match=f"offsets/2 and commits/1 are empty, .*: remove in .* {names}, and run again"
        ):
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


def test_an_empty_list_of_files_goes_with_the_micro_batch_that_was_begun__S4(query: Path) -> None:
    """Spark writes the list before the offsets. Once the micro-batch is completed, only a copy helps."""

    def offsets(number: int, read: int) -> None:
        (query / f"offsets/{number}").write_text("\n".join(["v1", "{}", f'{{"logOffset":{read}}}', TICKS]))

    for number in range(3):
        offsets(number, number)
    (query / "sources/0").mkdir(parents=True)
    for number in range(3):
        (query / f"sources/0/{number}").write_text("v1\n{}")
    check(LocalFolder(query))
    empty("sources/0", 2)(query)
    (query / "sources/0/.2.crc").write_text("")
    names = "sources/0/2 and sources/0/.2.crc and offsets/2"
    with pytest.raises(WrongUsage, match=f"sources/0/2 is empty, .*: remove in .* {names}, and run again"):
        check(LocalFolder(query))
    offsets(2, 1)
    with pytest.raises(
        WrongUsage, match=r"sources/0/2 is empty, .*: remove in .* sources/0/2 and sources/0/.2.crc, and"
    ):
        check(LocalFolder(query))
    offsets(2, 2)
    (query / "commits/2").write_text("v1\n{}")
    with pytest.raises(WrongUsage, match="sources/0 has lost the list of the files that were read"):
        check(LocalFolder(query))


def test_the_step_for_an_empty_first_list_is_enough__S4(query: Path) -> None:
    """The offsets that go with it are the first. Spark begins anew without them, and only where there is no state."""
    for log in ("offsets/1", "offsets/2", "commits/0", "commits/1"):
        (query / log).unlink()
    (query / "offsets/0").write_text("\n".join(["v1", "{}", '{"logOffset":0}', TICKS]))
    (query / "sources/0").mkdir(parents=True)
    (query / "sources/0/0").write_text("")
    (query / "state/0").mkdir(parents=True)
    with pytest.raises(WrongUsage, match=r"remove in .* sources/0/0 and offsets/0 and state, and run again"):
        check(LocalFolder(query))
    for name in ("sources/0/0", "offsets/0"):
        (query / name).unlink()
    (query / "state/0").rmdir()
    (query / "state").rmdir()
    check(LocalFolder(query))


def test_an_empty_summary_of_the_lists_is_told_as_a_list_is__S4(query: Path) -> None:
    (query / "sources/0").mkdir(parents=True)
    for number in range(9):
        (query / f"sources/0/{number}").write_text("v1\n{}")
    for name in ("9.compact", ".9.compact.crc"):
        (query / f"sources/0/{name}").write_text("")
    for read, names in (
        (8, "sources/0/9.compact and sources/0/.9.compact.crc"),
        (9, "sources/0/9.compact and sources/0/.9.compact.crc and offsets/2"),
    ):
        (query / "offsets/2").write_text("\n".join(["v1", "{}", f'{{"logOffset":{read}}}', TICKS]))
        with pytest.raises(WrongUsage, match=f"sources/0/9 is empty, .*: remove in .* {names}, and run again"):
            check(LocalFolder(query))


def test_no_step_deletes_the_state_once_a_second_micro_batch_was_completed__S4(query: Path) -> None:
    for log in ("offsets/1", "offsets/2", "commits/1"):
        (query / log).unlink()
    empty("offsets", 0)(query)
    (query / "state/0").mkdir(parents=True)
    folder = LocalFolder(query.parent / "kept")
    Begun(folder)({"batchId": 1})
    with pytest.raises(WrongUsage, match=r"has lost offsets, .* Restore the whole checkpoint from a copy"):
        check_logs(folder, LocalFolder(query))
    (query / "commits/1").write_text("v1\n{}")
    with pytest.raises(WrongUsage, match="has lost offsets"):
        check(LocalFolder(query))  # the note could not be written


def test_commits_without_their_offsets_are_refused__S4(query: Path) -> None:
    (query / "offsets/2").unlink()
    (query / "commits/2").write_text("v1\n{}")
    check(LocalFolder(query))  # as `start_anew` leaves it if it is ended
    (query / "commits/3").write_text("v1\n{}")
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
