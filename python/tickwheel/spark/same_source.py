"""A checkpoint goes on with the input that it was made for (rule S4).

Spark knows only how far it has read: offsets of a topic, names of files. Where the topic was made anew, or records were
deleted before they were read, it would leave out messages without a word. The checkpoint therefore keeps the identity
of its input. The newest file `source.N.json` counts, because an object store replaces no file in one step.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.spark.file_log import entries, names_of
from tickwheel.spark.shape import Folder, read_text

BEGUN: Final = "begun"
"""A file of the checkpoint. It is there once the checkpoint may hold messages."""
_NAME: Final = re.compile(r"source\.(\d+)\.json")
_BATCH: Final = re.compile(r"\d+")
_NAMED: Final = 5


class TopicOffsets(Protocol):
    """A topic of Kafka, as `kafka_topic.Topic`."""

    name: str

    def begin(self) -> Mapping[int, int]:
        """For each partition its first offset."""


def check_source(folder: Folder, identity: str, *, may_change: bool = False) -> None:
    """Errors: `WrongUsage` if the checkpoint was made for another input; a new one is for any."""
    before = _kept(folder)[1]
    if before not in (None, identity) and not may_change:
        raise WrongUsage(
            f"the input is not the one that the checkpoint {folder} was made for: it is {identity}, and was {before}. "
            "Read it with a new checkpoint: messages that are known are not delivered twice. With --changed-source "
            "this one goes on from where it had read to, until what it holds is delivered"
        )


def keep_source(folder: Folder, identity: str) -> None:
    """Write to the checkpoint which input it is for from now on."""
    number, before = _kept(folder)
    if before != identity:
        folder.write(f"source.{number + 1}.json", msgspec.json.encode({"source": identity}))


def gone(query: Folder, topic: TopicOffsets) -> Sequence[str]:
    """Which records were deleted from a topic before they were read, in words."""
    begun = _batches(query, "offsets")
    done = [it for it in begun if it in _batches(query, "commits")]
    if not done:
        return []
    lines = (read_text(query, f"offsets/{done[-1]}") or "").split("\n")
    read = next((found for line in lines if (found := _offsets_in(line, topic.name)) is not None), {})
    begin = topic.begin()
    return [
        f"{next_} to {begin[int(partition)] - 1} of partition {partition}"
        for partition, next_ in sorted(read.items(), key=lambda it: int(it[0]))
        if begin.get(int(partition), 0) > next_
    ]


class Begun:
    """Notes in the checkpoint that micro-batches were completed. Call it with each report of the query."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._is_kept = False
        self._tried: int | None = None

    def __call__(self, progress: Mapping[str, Any] | None) -> None:
        """Write the note, if it is not there."""
        # The first micro-batch does not count: if its offsets are lost, it can be done again from its start.
        if self._is_kept or progress is None or progress["batchId"] < 1 or progress["batchId"] == self._tried:
            return
        self._tried = progress["batchId"]
        with suppress(OSError):  # the next micro-batch tries it again
            if self._folder.read(BEGUN) is None:
                self._folder.write(BEGUN, b"{}")
            self._is_kept = True


def check_logs(folder: Folder, query: Folder) -> None:
    """Refuse a checkpoint that has lost its query: Spark would begin anew without a word, and what was held would be
    lost. And refuse logs with which Spark would fail without a reason. Errors: `WrongUsage` with the safe step,
    `OSError`.
    """
    lost = WrongUsage(
        f"{query} has lost offsets, and without them Spark begins anew: what the checkpoint {folder} holds would be "
        "lost. Restore the whole checkpoint from a copy. Or name another checkpoint, and give all messages again: "
        "deliverers drop what they know"
    )
    offsets, commits = _batches(query, "offsets"), _batches(query, "commits")
    last = [f"{log}/{it[-1]}" for log, it in (("offsets", offsets), ("commits", commits)) if it]
    if empty := [name for name in last if not query.read(name)]:
        raise WrongUsage(
            f"{query}/{' and '.join(empty)} {'is' if len(empty) == 1 else 'are'} empty, as after a loss of power: "
            "restore the whole checkpoint from a copy. Without one, remove the file with its checksum, and of its "
            "micro-batch also the one in commits, and run again: a deliverer drops what it has"
        )
    if not offsets:
        if folder.read(BEGUN) is not None or commits or query.names("state"):
            raise lost
        return
    if commits and commits[-1] > offsets[-1]:
        raise lost
    for source, number in _file_offsets(query, offsets[-1]).items():
        kept = {*query.names(f"sources/{source}")}
        whole = {it for it in {f"{number}", f"{number}.compact"} & kept if query.read(f"sources/{source}/{it}")}
        if number >= 0 and not whole:
            raise WrongUsage(
                f"{query}/sources/{source} has lost the list of the files that were read: restore it from a copy; "
                "without it Spark leaves out new files. Or give all files again with a new checkpoint, after this one "
                "has delivered what it holds: deliverers drop what they know"
            )


def check_files(query: Folder, is_there: Callable[[str], bool]) -> None:
    """Refuse to go on without a file that Spark has noted and not read. Spark would leave it out without a word. It
    notes files before their micro-batch begins. `is_there`: whether a file has this address. Errors: `WrongUsage`,
    `OSError`.
    """
    begun, done = _batches(query, "offsets"), _batches(query, "commits")
    if done and done[-1] not in begun:
        return
    read = _file_offsets(query, done[-1]).get(0, -1) if done else -1
    names = names_of(query, 0, after=read).values()
    noted = [it for name in names for it in entries(query, name) if it.number > read]
    lost = [it.path for it in noted if not is_there(it.path)]
    if lost:
        more = f" and {len(lost) - _NAMED:,} more" if len(lost) > _NAMED else ""
        raise WrongUsage(
            f"files are gone that were seen and not read: {', '.join(lost[:_NAMED])}{more}: put them back. Or leave "
            "their messages out, with --changed-source"
        )


def _kept(folder: Folder) -> tuple[int, str | None]:
    """Which input it is for, with the number of the file that says it."""
    number = max((int(found[1]) for found in map(_NAME.fullmatch, folder.names()) if found), default=0)
    if not number:
        return 0, None
    name = f"source.{number}.json"
    try:
        return number, msgspec.json.decode(folder.read(name) or b"", type=dict[str, str])["source"]
    except (msgspec.MsgspecError, KeyError) as error:
        raise WrongUsage(f"{folder}/{name} is damaged: remove it, and run again with the input as it was") from error


def _batches(query: Folder, log: str) -> list[int]:
    return sorted(int(it) for it in query.names(log) if _BATCH.fullmatch(it))


def _file_offsets(query: Folder, batch: int) -> Mapping[int, int]:
    """How far a micro-batch reads each source of files: the number in the list of its files."""
    found = {}
    # Line 0 is a version, 1 has settings; then each source has one.
    for source, line in enumerate((read_text(query, f"offsets/{batch}") or "").split("\n")[2:]):
        with suppress(msgspec.MsgspecError):  # of another source
            if isinstance(number := msgspec.json.decode(line, type=dict[str, object]).get("logOffset"), int):
                found[source] = number
    return found


def _offsets_in(line: str, topic: str) -> Mapping[str, int] | None:
    try:
        return msgspec.json.decode(line, type=dict[str, dict[str, int]]).get(topic)
    except msgspec.MsgspecError:
        return None
