"""One run of the pipeline (rule S1): files are read, held and handed off, until all of it is.

    files -> parse -> hold -> hand off -> deliverers

The checkpoint has what a later run needs to go on: which files were noted, what is held, and what may not change
meanwhile. So what was read is not read again, and what is held is still held.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tickwheel.delivery.errors import DeliveryFailed, WrongUsage
from tickwheel.delivery.message import Columns
from tickwheel.delivery.sources import Source
from tickwheel.spark.hand_off import HandOff
from tickwheel.spark.hold import PARTITIONS, SHARDS, hold
from tickwheel.spark.parse import parse_files
from tickwheel.spark.session import laptop_session, need_java

_TRIGGER: Final = "1 second"
_LOOK_EVERY_S: Final = 0.2
_FILES_AT_ONCE: Final = 64
_END_WITHIN_S: Final = 30.0
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What to read, and how; the checkpoint keeps the deliverers' names. Errors: `WrongUsage`, also without Java."""

    sources: Sequence[Source]
    columns: Columns
    checkpoint: Path
    lead_ms: int
    deliverers: Sequence[str]

    def __post_init__(self) -> None:
        for source in self.sources:
            if source.path is None:
                raise WrongUsage("--engine spark reads files: standard input (-) can't be read again after a crash")
        need_java()

    def feed(
        self, hand_off: HandOff, stop: threading.Event, check: Callable[[Mapping[str, Any] | None], object]
    ) -> bool:
        """Whether all was handed off before `stop` was set. `check` is called some times a second, with what the query
        says of its last micro-batch, and may raise. Errors: `DeliveryFailed`, `WrongUsage`.
        """
        keep_shape(self.checkpoint, {"deliverers": [*self.deliverers]})
        paths = list_files(self.checkpoint / "files", self.sources)
        try:
            session = laptop_session()
            try:
                query = start(self._near(session, paths), hand_off, self.checkpoint / "query")
                return _watch(query, stop, check)
            finally:
                session.stop()
        except PySparkException as error:
            raise DeliveryFailed(f"Spark failed: {_short(error)}") from error

    def _near(self, session: SparkSession, paths: Path) -> DataFrame:
        notes = session.readStream.format("text").option("maxFilesPerTrigger", _FILES_AT_ONCE).load(str(paths))
        return hold(parse_files(notes.withColumnRenamed("value", "path"), self.columns), self.lead_ms)


def start(near: DataFrame, hand_off: HandOff, checkpoint: Path) -> Any:
    """The query that hands off what the hold releases, once a second."""
    return (
        near.writeStream.foreachBatch(hand_off)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=_TRIGGER)
        .start()
    )


def read(progress: Mapping[str, Any]) -> int:
    """How many rows the last micro-batch read, but for the hold's heartbeat."""
    rows = (source["numInputRows"] for source in progress["sources"] if "RateStream" not in source["description"])
    return sum(rows)


def held(progress: Mapping[str, Any]) -> int:
    """How many groups hold something, by what a query says of its last micro-batch."""
    return sum(operator["numRowsTotal"] for operator in progress["stateOperators"])


def _watch(query: Any, stop: threading.Event, check: Callable[[Mapping[str, Any] | None], object]) -> bool:
    try:
        while not stop.wait(_LOOK_EVERY_S):
            if not query.isActive:
                raise DeliveryFailed(f"Spark failed: {_short(query.exception())}")
            progress = query.lastProgress
            check(progress)
            if progress is not None and progress["stateOperators"] and not read(progress) and not held(progress):
                return True
    finally:
        end(query)
    return False


def end(query: Any) -> None:
    """Stop it between two micro-batches, where it comes to that soon: one that is broken off is done again."""
    by_s = time.monotonic() + _END_WITHIN_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < by_s:
        time.sleep(0.005)
    query.stop()


def list_files(folder: Path, sources: Sequence[Source]) -> Path:
    """Note in `folder` each file that is to be read, in a file of its own, which is what the query reads. One that has
    changed since is noted again: what of it was known is dropped as duplicates.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for source in sources:
        assert source.path is not None
        path = source.path.resolve()
        state = path.stat()
        name = blake2b(f"{path}\0{state.st_size}\0{state.st_mtime_ns}".encode(errors="surrogateescape"), digest_size=12)
        note = folder / f"{name.hexdigest()}.txt"
        if not note.exists():
            _write_at_once(note, f"{path.as_uri()}\n")
    return folder


def keep_shape(checkpoint: Path, more: Mapping[str, object]) -> None:
    """Note in the checkpoint what may not change while anything is held. Errors: `WrongUsage` if it has."""
    shape = {"format": _FORMAT, "partitions": PARTITIONS, "shards": SHARDS, **more}
    path = checkpoint / "tickwheel.json"
    if not path.exists():
        checkpoint.mkdir(parents=True, exist_ok=True)
        _write_at_once(path, json.dumps(shape))
        return
    try:
        before = dict(json.loads(path.read_text()))
    except ValueError as error:
        raise WrongUsage(f"{path} is damaged: name another checkpoint; what this one holds is lost") from error
    for name, value in shape.items():
        if before.get(name) != value:
            raise WrongUsage(
                f"the checkpoint {checkpoint} was made with {name} {before.get(name)}, now it is {value}: go on as "
                "before until all is delivered, or name another checkpoint"
            )


def _write_at_once(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}")  # Spark leaves out what begins with a dot
    new.write_text(text)
    new.rename(path)


def _short(error: object) -> str:
    return " ".join(str(error).split())[:500]
