"""What an upgrade exported, as the first state of a new checkpoint (`--held`).

All of it is taken in by the first micro-batch, before anything of the input. So a cancel or a new due time in the input
finds its message. The checkpoint notes where the export is, until that micro-batch is complete: a start after a crash
takes it in too.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.spark.packing import gather, split_by
from tickwheel.spark.parse import parse_contents, parse_files
from tickwheel.spark.schemas import HELD
from tickwheel.spark.shape import NAME as SHAPE
from tickwheel.spark.shape import Folder, HadoopFolder
from tickwheel.spark.upgrade.written import FOLDERS, NAME, TAKEN_IN, Kind, Upgrade

FIELD: Final = "held"
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Held:
    """An export. `folder`: its full path or address."""

    folder: str
    upgrade: Upgrade

    @classmethod
    def of(cls, folder: Folder, name: str) -> "Held":
        """Errors: `WrongUsage` if there is no complete export."""
        try:
            found = folder.read(NAME)
        except OSError as error:
            raise WrongUsage(f"--held {name} can't be read: {error.strerror}") from error
        if found is None:
            raise WrongUsage(f"--held {name} is no complete export, as it has no {NAME}: run tickwheel spark-upgrade")
        try:
            return cls(name, msgspec.json.decode(found, type=Upgrade))
        except msgspec.MsgspecError as error:
            raise WrongUsage(f"--held {name}/{NAME} is damaged ({error}): run tickwheel spark-upgrade again") from error

    def pieces(self, session: SparkSession) -> DataFrame:
        """`HELD`. Not a stream."""
        folder = HadoopFolder(session, self.folder)
        return reduce(DataFrame.unionByName, (_pieces(session, folder, self.folder, kind) for kind in TAKEN_IN))

    def start_of(self, topic: str) -> str | None:
        """Where a topic goes on, as `startingOffsets`. Errors: `WrongUsage` if another topic was read."""
        topics = [it.offsets for it in self.upgrade.sources if it.offsets is not None]
        if topics and topic not in topics[0]:
            raise WrongUsage(
                f"--held {self.folder} is of the topic {', '.join(topics[0])}, and INPUT is {topic}: to read it from "
                "its start give --source-option startingOffsets=earliest"
            )
        return msgspec.json.encode(topics[0]).decode() if topics else None

    def refuse_read(self, paths: Iterable[str]) -> None:
        """Errors: `WrongUsage` if a file of the input was read before the export."""
        before = {name for it in self.upgrade.sources for name in map(_plain, it.files or ())}
        again = sorted(before.intersection(map(_plain, paths)))
        if again:
            more = f" and {len(again) - _NAMED:,} more" if len(again) > _NAMED else ""
            raise WrongUsage(
                f"files of INPUT were read before the export {self.folder}: {', '.join(again[:_NAMED])}{more}. Move "
                f"them out of INPUT: {NAME} names all"
            )


def read_held(session: SparkSession, folder: str) -> DataFrame:
    """What `tickwheel spark-upgrade` wrote to a folder, for `hold(..., held=...)`. Only the first micro-batch of a
    checkpoint takes it in; so give it until that is complete, and later it does nothing. Errors: `WrongUsage`.
    """
    files = HadoopFolder(session, folder)
    return Held.of(files, files.full_name).pieces(session)


def held_of(checkpoint: Folder, given: str | None) -> str | None:
    """The export that the next micro-batch has to take in: `given`, or the one that the checkpoint notes.

    Errors: `WrongUsage` if the checkpoint has begun without it.
    """
    shape = checkpoint.read(SHAPE)
    try:
        noted = msgspec.json.decode(shape or b"{}", type=dict[str, Any]).get(FIELD)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None  # `check_shape` tells what it is
    has_begun = any(name.isdecimal() for name in checkpoint.names("query/commits"))
    if given is not None and noted not in (given, None):
        raise WrongUsage(f"{checkpoint} began with --held {noted}, and not with {given}: leave it out")
    if given is not None and noted is None and shape is not None:
        raise WrongUsage(
            f"--held is for a new checkpoint, and {checkpoint} is used already: name another one, or leave it out"
        )
    return None if has_begun else (noted or given)


def _pieces(session: SparkSession, folder: HadoopFolder, name: str, kind: Kind) -> DataFrame:
    """The records of a kind. Their numbers are above those of the kinds before."""
    within = f"{name}/{FOLDERS[kind]}"
    paths = [f"{within}/{file}" for file in folder.names(FOLDERS[kind]) if file.endswith(".ndjson")]
    if folder.scheme == "file" or not paths:
        messages = parse_files(session.createDataFrame([(path,) for path in paths], "path STRING"))
    else:
        messages = parse_contents(session.read.format("binaryFile").load(paths).select("path", "content"))

    def numbered(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        number = kind << 40
        for many in gather(batches):
            shards, pieces = zip(*split_by(many, "partition"), strict=True)
            numbers = [*range(number, number + len(pieces))]
            number = numbers[-1] + 1
            is_given = [kind == Kind.GIVEN] * len(pieces)
            columns = [pa.array(shards, pa.int32()), numbers, is_given, pa.array(pieces, pa.binary())]
            yield pa.record_batch(columns, HELD.names)

    return messages.mapInArrow(numbered, HELD)


def _plain(path: str) -> str:
    """A path or an address, the same however many slashes its scheme has."""
    return path.removeprefix("file:").replace("///", "/", 1)
