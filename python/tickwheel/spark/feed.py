"""One run of the pipeline (rule S1): files are read, held and handed off, until everything is handed off.

    files -> parse -> hold -> hand off -> deliverers

The checkpoint has what a later run needs to go on: the list of files, the held messages, and the settings that may not
change meanwhile. So no file is read twice, and held messages stay held.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tickwheel.delivery.errors import DeliveryFailed, WrongUsage
from tickwheel.delivery.handed import PARTITIONS
from tickwheel.delivery.message import Columns
from tickwheel.delivery.sources import Source
from tickwheel.spark.failing import failure
from tickwheel.spark.hand_off import HandOff
from tickwheel.spark.hold import hold
from tickwheel.spark.packing import VERSION
from tickwheel.spark.parse import parse_files
from tickwheel.spark.session import laptop_session, need_java

_TRIGGER: Final = "1 second"
_LOOK_EVERY_S: Final = 0.2
_FILES_AT_ONCE: Final = 64
_END_WITHIN_S: Final = 30.0
_AS_MADE: Final = {"format": VERSION, "partitions": PARTITIONS}
_SHAPE: Final = "tickwheel.json"
_INSTEAD: Final = "or name another checkpoint: what this one holds is lost, unless its files are given again"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What to read, and how.

    Errors: `WrongUsage`, also without Java, and for a checkpoint of another pipeline; nothing is written then.
    """

    sources: Sequence[Source]
    columns: Columns
    checkpoint: Path
    lead_ms: int

    def __post_init__(self) -> None:
        check_sources(self.sources)
        check_shape(self.checkpoint)

    def feed(
        self, hand_off: HandOff, stop: threading.Event, check: Callable[[Mapping[str, Any] | None], object]
    ) -> bool:
        """Whether everything was delivered before `stop` was set. `check` is called some times a second, with the
        query's report of its last micro-batch, and may raise. Errors: `DeliveryFailed`, `WrongUsage`.
        """
        try:
            keep_shape(self.checkpoint)
            paths = list_files(self.checkpoint / "files", self.sources)
        except OSError as error:
            raise DeliveryFailed(
                f"the list of inputs can't be written to the checkpoint {self.checkpoint}: {error.strerror} "
                f"({error.filename}); make the checkpoint writable, and leave the inputs where they are"
            ) from error
        at = self.checkpoint / "query"
        done_before = _micro_batches(at)
        try:
            session = laptop_session(spare_cores=1)
            try:
                return _watch(start(self._near(session, paths), hand_off, at), hand_off, stop, check)
            finally:
                session.stop()
                hand_off.close()
        except (PySparkException, Py4JError) as error:
            is_resuming = bool(done_before) and _micro_batches(at) == done_before
            raise failure(error, self.checkpoint, is_resuming=is_resuming) from error

    def _near(self, session: SparkSession, paths: Path) -> DataFrame:
        notes = session.readStream.format("text").option("maxFilesPerTrigger", _FILES_AT_ONCE).load(str(paths))
        return hold(parse_files(notes.withColumnRenamed("value", "path"), self.columns), self.lead_ms)


def check_sources(sources: Sequence[Source]) -> None:
    """Errors: `WrongUsage` if Spark can't read these sources, or can't run."""
    if any(source.path is None for source in sources):
        raise WrongUsage(
            "--engine spark does not read standard input (-), which a crash would lose: give files or folders"
        )
    need_java()


def start(near: DataFrame, hand_off: HandOff, checkpoint: Path) -> Any:
    """Start the query that hands off what the hold releases, once a second."""
    return (
        near.writeStream.foreachBatch(hand_off)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=_TRIGGER)
        .start()
    )


def read(progress: Mapping[str, Any]) -> int:
    """How many rows the last micro-batch read, without the hold's ticks."""
    return sum(
        source["numInputRows"] for source in progress["sources"] if "RatePerMicroBatch" not in source["description"]
    )


def _watch(
    query: Any, hand_off: HandOff, stop: threading.Event, check: Callable[[Mapping[str, Any] | None], object]
) -> bool:
    try:
        while not stop.wait(_LOOK_EVERY_S):
            if not query.isActive:
                query.awaitTermination()  # raises the query's error
                raise DeliveryFailed("Spark stopped the query without a reason")
            progress = query.lastProgress
            check(progress)
            if progress is not None and not read(progress) and hand_off.report.is_empty:
                return True
    finally:
        end(query)
    return False


def end(query: Any) -> None:
    """Stop the query between two micro-batches if one ends soon: an interrupted micro-batch is done again."""
    by_s = time.monotonic() + _END_WITHIN_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < by_s:
        time.sleep(0.005)
    query.stop()


def _micro_batches(at: Path) -> set[str]:
    """The finished micro-batches, by the names of their files; Spark keeps the last hundred."""
    return {done.name for done in (at / "commits").glob("[0-9]*")}


def list_files(folder: Path, sources: Sequence[Source]) -> Path:
    """Write to `folder` a note for each file to read; the query reads these notes. A file that has changed since gets
    a new note, and its messages that are known are dropped as duplicates. A link keeps its own name, because the suffix
    is the format.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for source in sources:
        assert source.path is not None
        path = source.path.parent.resolve() / source.path.name
        state = path.stat()
        name = blake2b(f"{path}\0{state.st_size}\0{state.st_mtime_ns}".encode(errors="surrogateescape"), digest_size=12)
        note = folder / f"{name.hexdigest()}.txt"
        if not note.exists():
            _write_at_once(note, f"{path.as_uri()}\n")
    return folder


def keep_shape(checkpoint: Path) -> None:
    """Write to the checkpoint what may not change while messages are held. Errors: as of `check_shape`."""
    if check_shape(checkpoint):
        checkpoint.mkdir(parents=True, exist_ok=True)
        _write_at_once(checkpoint / _SHAPE, msgspec.json.encode(_AS_MADE).decode())


def check_shape(checkpoint: Path) -> bool:
    """Whether the checkpoint is still to be made. Writes nothing.

    Errors: `WrongUsage` if it is no checkpoint, is damaged, or was made by another version.
    """
    path = checkpoint / _SHAPE
    try:
        before = msgspec.json.decode(path.read_bytes(), type=dict[str, object])
    except FileNotFoundError:
        _refuse_others(checkpoint)
        return True
    except OSError as error:
        raise WrongUsage(f"{path} can't be read: {error.strerror}: name another checkpoint") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WrongUsage(f"{path} is damaged: restore it from a copy, {_INSTEAD}") from error
    for name, value in _AS_MADE.items():
        if before.get(name) != value:
            raise WrongUsage(
                f"the checkpoint {checkpoint} was made by another version of tickwheel ({name} {before.get(name)}, "
                f"this one has {value}): go on with that version until all is delivered, {_INSTEAD}"
            )
    return False


def _refuse_others(checkpoint: Path) -> None:
    """Refuse files without a shape: another program's folder, or a checkpoint that has lost a part."""
    if checkpoint.is_dir() and any(_counts(entry) for entry in checkpoint.iterdir()):
        raise WrongUsage(
            f"{checkpoint} holds files, but no {_SHAPE}, so it is no checkpoint of tickwheel, or damaged: name a "
            f"folder that is new or empty, or restore {_SHAPE} from a copy"
        )


def _counts(entry: Path) -> bool:
    return not entry.name.startswith(".") and entry.name != "lost+found"  # which a file system keeps in its top folder


def _write_at_once(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}")  # Spark skips names that begin with a dot
    new.write_text(text)
    new.rename(path)
