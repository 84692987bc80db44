"""One run of the pipeline (rule S1): files are read, held and handed off, until everything is handed off.

    files -> parse -> hold -> hand off -> deliverers

The checkpoint has what a later run needs to go on: the list of files, the held messages, and the settings that may not
change meanwhile. So no file is read twice, and held messages stay held.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tickwheel._event import Event
from tickwheel.delivery.base.errors import DeliveryFailed, WrongUsage
from tickwheel.delivery.model.message import Columns
from tickwheel.delivery.read.sources import Source
from tickwheel.spark.driver_log import Watched
from tickwheel.spark.failing import failure
from tickwheel.spark.hand_off import HandOff
from tickwheel.spark.hold import hold
from tickwheel.spark.metrics import QueryMeasures
from tickwheel.spark.parse import parse_files
from tickwheel.spark.query import Check, start, watch
from tickwheel.spark.same_source import Begun, check_logs
from tickwheel.spark.session import laptop_session, need_java, take_signals
from tickwheel.spark.shape import LocalFolder, check_shape, keep_shape
from tickwheel.spark.sources import BYTES_AT_ONCE

_FILES_AT_ONCE: Final = 64


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
        check_shape(LocalFolder(self.checkpoint))
        check_logs(LocalFolder(self.checkpoint), LocalFolder(self.checkpoint / "query"))

    def feed(self, hand_off: HandOff, stop: Event, check: Check) -> bool:
        """Whether everything was delivered before `stop` was set. `check` is called some times a second, with the
        query's report of its last micro-batch, and may raise. Errors: `DeliveryFailed`, `WrongUsage`.
        """
        watched = Watched(hand_off, QueryMeasures(self.lead_ms / 1000), time.monotonic())
        begun = Begun(LocalFolder(self.checkpoint))

        def both(progress: Mapping[str, Any] | None) -> None:
            watched(progress)
            begun(progress)
            check(progress)

        try:
            keep_shape(LocalFolder(self.checkpoint))
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
                take_signals()
                return watch(start(self._near(session, paths), hand_off, at, stop), hand_off, stop, both)
            finally:
                session.stop()
                hand_off.close()
        except (PySparkException, Py4JError) as error:
            is_resuming = bool(done_before) and _micro_batches(at) == done_before
            raise failure(error, self.checkpoint, is_resuming=is_resuming) from error

    def _near(self, session: SparkSession, paths: Path) -> DataFrame:
        at_once = files_at_once([source.path.stat().st_size for source in self.sources if source.path])
        notes = session.readStream.format("text").option("maxFilesPerTrigger", at_once).load(str(paths))
        return hold(parse_files(notes.withColumnRenamed("value", "path"), self.columns), self.lead_ms)


def check_sources(sources: Sequence[Source]) -> None:
    """Errors: `WrongUsage` if Spark can't read these sources, or can't run."""
    if any(source.path is None for source in sources):
        raise WrongUsage(
            "--engine spark does not read standard input (-), which a crash would lose: give files or folders"
        )
    need_java()


def files_at_once(sizes: Sequence[int]) -> int:
    """How many files a micro-batch reads, so that it ends soon: 64, or fewer large ones. One at least is read whole."""
    return max(1, min(_FILES_AT_ONCE, BYTES_AT_ONCE // max([1, *sizes])))


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


def _write_at_once(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}")  # Spark skips names that begin with a dot
    new.write_text(text)
    new.rename(path)
