"""A checkpoint goes on with the input that it was made for, or says which choice there is (rule S4).

Spark knows only how far it has read: offsets of a topic, names of files. Where the topic was made anew, or records were
deleted before they were read, it would leave out messages without a word. The checkpoint therefore keeps the identity
of its input. The newest file `source.N.json` counts, because an object store replaces no file in one step.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.spark.file_log import entries, names_of
from tickwheel.spark.shape import Folder, read_text

Choice: TypeAlias = Literal["start", "go-on"]

BEGUN: Final = "begun"
"""A file of the checkpoint. It is there once the checkpoint may hold messages."""
_NAME: Final = re.compile(r"source\.(\d+)\.json")
_BATCH: Final = re.compile(r"\d+")
_LIST: Final = re.compile(r"(\d+)(?:\.compact)?")
_NAMED: Final = 5


class TopicOffsets(Protocol):
    """A topic of Kafka, as `kafka_topic.Topic`."""

    name: str

    def begin(self) -> Mapping[int, int]:
        """For each partition its first offset."""


def check_source(folder: Folder, identity: str, choice: Choice | None) -> bool:
    """Whether the checkpoint was made for another input; a new one is for any. Errors: `WrongUsage` for another input
    without a choice.
    """
    before = _kept(folder)[1]
    if before in (None, identity):
        return False
    if choice is None:
        raise WrongUsage(
            f"the input is not the one that the checkpoint {folder} was made for: it is {identity}, and was {before}. "
            "With --changed-source start it is read from its start, with --changed-source go-on from where the one "
            "before was read to; both keep what is held. Messages that are known are not delivered twice"
        )
    return True


def keep_source(folder: Folder, identity: str) -> None:
    """Write to the checkpoint which input it is for from now on."""
    number, before = _kept(folder)
    if before != identity:
        folder.write(f"source.{number + 1}.json", msgspec.json.encode({"source": identity}))


def start_anew(query: Folder, topic: TopicOffsets) -> None:
    """Read a topic from its start with the next micro-batch. The offsets of the last completed one are replaced. A
    later micro-batch that was only begun loses its offsets, because its records are gone.

    Errors: `WrongUsage` if no offsets are left to begin from.
    """
    done, begun = _batches(query, "commits"), _batches(query, "offsets")
    if not done:
        return
    for later in (it for it in begun if it > done[-1]):
        query.remove(f"offsets/{later}")
    name = f"offsets/{done[-1]}"
    earlier = [it for it in begun if it <= done[-1]]
    if not earlier:
        raise WrongUsage(
            f"{query}/{name} is missing, as after an earlier try that was killed: restore it from a copy. Or begin a "
            "new checkpoint once this one has delivered what it holds: deliverers drop what they know"
        )
    like = earlier[-1]  # the one before, if an earlier try ended in the middle
    begin = {str(partition): offset for partition, offset in topic.begin().items()}
    lines = [
        msgspec.json.encode({topic.name: begin}).decode() if _offsets_in(line, topic.name) is not None else line
        for line in (read_text(query, f"offsets/{like}") or "").split("\n")
    ]
    query.remove(name)
    query.write(name, "\n".join(lines).encode())


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
    has_begun = folder.read(BEGUN) is not None
    offsets, commits = _batches(query, "offsets"), _batches(query, "commits")
    last = [(log, it[-1]) for log, it in (("offsets", offsets), ("commits", commits)) if it]
    empty = [(log, number) for log, number in last if not query.read(f"{log}/{number}")]
    lists = _empty_lists(query, offsets, commits)
    empty += lists
    if empty:
        logs: list[tuple[str, int]] = []
        for log, number in empty:
            logs += [(log, number), *(("offsets", it) for it in lists.get((log, number), ()))]
            logs += [("commits", number)] * (log == "offsets")
        names = [f"{log}/{name}" for log, number in dict.fromkeys(logs) for name in _files_of(query, log, number)]
        if ("offsets", 0) in logs:
            if has_begun or (commits and commits[-1] > 0):
                raise lost  # it was not the first micro-batch
            names += ["state"] * bool(query.names("state"))  # where there is one, Spark does not begin
        what = " and ".join(f"{log}/{number}" for log, number in empty)
        raise WrongUsage(
            f"{query}/{what} {'is' if len(empty) == 1 else 'are'} empty, as after a loss of power: remove in {query} "
            f"{' and '.join(names)}, and run again. The micro-batch is done again, and a deliverer drops what it has"
        )
    if not offsets:
        if has_begun or commits or query.names("state"):
            raise lost
        return
    # One more is there if `start_anew` was ended.
    if commits and commits[-1] > offsets[-1] + 1:
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


def _empty_lists(query: Folder, offsets: Sequence[int], commits: Sequence[int]) -> Mapping[tuple[str, int], list[int]]:
    """The empty last files of the lists of the input's files, unless a completed micro-batch read what they listed:
    Spark lists these files again. For each file the micro-batches that were begun with it.
    """
    found = {}
    for source in query.names("sources"):
        names = query.names(f"sources/{source}")
        last = max((int(found[1]) for found in map(_LIST.fullmatch, names) if found), default=None)
        kept = {f"{last}", f"{last}.compact"} & {*names}
        if last is None or any(query.read(f"sources/{source}/{it}") for it in kept):
            continue
        begun = [it for it in offsets if _file_offsets(query, it).get(int(source), -1) >= last]
        if not {*begun} & {*commits}:
            found[f"sources/{source}", last] = begun
    return found


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
            "their messages out, with --changed-source go-on"
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


def _files_of(query: Folder, log: str, number: int) -> list[str]:
    """A micro-batch's file, and its checksum, which a local file system has and which Spark would stumble on."""
    names = {f"{number}", f".{number}.crc", f"{number}.compact", f".{number}.compact.crc"}
    return sorted(names & {*query.names(log)}, reverse=True)


def _offsets_in(line: str, topic: str) -> Mapping[str, int] | None:
    try:
        return msgspec.json.decode(line, type=dict[str, dict[str, int]]).get(topic)
    except msgspec.MsgspecError:
        return None
