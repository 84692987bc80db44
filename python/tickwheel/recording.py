"""Records what a timer does in a Parquet file: for `tickwheel simulate`, `tickwheel analyze`, or SQL.

Off by default. The timer notes an event in some fifty nanoseconds; a Python thread takes the events out every 100 ms
and writes them. Needs pyarrow: `pip install 'tickwheel[recording]'`.

One row is one event. The events are in order:

| column | type | meaning |
|---|---|---|
| `at_us` | int64 | the time of the event, on the timer's own clock |
| `kind` | text | `added`, `moved`, `cancelled`, `expired`, `cascaded`, `woke` |
| `number` | int64 | the task, by the number of its add, never used twice; null for `cascaded` and `woke` |
| `due_us` | int64 | the due time of the task, or the expiration of the bucket; null for `woke` |
| `level` | int8 | the level of an added or moved task, 1 the finest, 0 the front; that of the bucket that `cascaded` |
| `was` | int64 | the earlier number of a `moved` task |
| `tasks` | int64 | the number of tasks in the bucket that `cascaded` |

The file's metadata has the timer's name and both clocks at the beginning (`tickwheel.recording`), and the number of
lost events at the end (`tickwheel.ended`).
"""

import atexit
import errno
import json
import os
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tickwheel import TickwheelError, Timer
from tickwheel._event import Event
from tickwheel._native import DeliveryEngine, Replay

if TYPE_CHECKING:
    from tickwheel._native import ReplayCounts

KINDS: Final = ("added", "moved", "cancelled", "expired", "cascaded", "woke")
"""The kinds of events; the index is the timer's number of the kind."""

SCHEMA: Final = pa.schema(
    [
        pa.field("at_us", pa.int64(), nullable=False),
        pa.field("kind", pa.dictionary(pa.int8(), pa.string()), nullable=False),
        pa.field("number", pa.int64()),
        pa.field("due_us", pa.int64()),
        pa.field("level", pa.int8()),
        pa.field("was", pa.int64()),
        pa.field("tasks", pa.int64()),
    ]
)
"""The columns of a recording."""

_VERSION: Final = 1
_BEGUN: Final = b"tickwheel.recording"
_ENDED: Final = b"tickwheel.ended"
_INTERVAL_S: Final = 0.1
_KEPT: Final = 1_000_000  # events, 40 bytes each
_STEP: Final = 1 << 16  # events taken at once, so that the GIL is held briefly
_GROUP: Final = 1 << 18  # events in a row group
_ADDED, _MOVED, _CANCELLED, _EXPIRED, _CASCADED, _WOKE = range(len(KINDS))


@dataclass(frozen=True, slots=True)
class About:
    """A recording's metadata.

    `at_us` and `wall_ms` are the timer's clock and the wall clock at its beginning. `ended_us` is the timer's clock at
    its end, `lost` the number of events that it could not take.
    """

    timer: str
    at_us: int
    wall_ms: int
    ended_us: int
    lost: int


class BadRecording(TickwheelError, ValueError):
    """A file is not a recording, or one of another version."""


class Recording:
    """Records what `timer` does in the Parquet file `path`, from now until `close`; used in a `with` block.

    Begin before the first add: a cancel of a task that was added before is recorded, but without its add. Until `close`
    the file is beside `path`, with random letters and `.part` appended; a crash leaves it there. A million events may
    wait to be written; further ones are counted in `lost`. Errors: `ValueError` if the timer is being recorded already,
    `OSError` if the file can't be made. An error while writing ends the recording, not the timer, and `close`
    raises it.

    >>> from tempfile import TemporaryDirectory
    >>> from tickwheel import SystemTimer
    >>> with TemporaryDirectory() as folder, SystemTimer("demo") as timer:
    ...     with Recording(timer, f"{folder}/events.parquet"):
    ...         timer.after(60_000, print).cancel()
    True
    """

    def __init__(self, timer: Timer | DeliveryEngine, path: str | os.PathLike[str]) -> None:
        if not isinstance(timer, Timer | DeliveryEngine):
            given = type(timer).__name__
            raise TypeError(f"timer must be a SystemTimer or a ManualTimer, got {given}: pass the timer itself")
        if not isinstance(path, str | os.PathLike):
            given = type(path).__name__
            raise TypeError(f"path must be text or a path, got {given}: name the file to write")
        self.lost = 0
        self._timer, self._path = timer, Path(path)
        if self._path.exists() and not self._path.is_file():
            raise FileExistsError(errno.EEXIST, "it is no file: name a file", str(path))
        self._part = self._path.with_name(f"{self._path.name}.{secrets.token_hex(4)}.part")
        self._error: Exception | None = None
        self._ending, self._ended, self._closing = Event(), Event(), threading.RLock()
        self._process, self._is_closed, self._is_over = os.getpid(), False, False
        if not timer._record(_KEPT):
            raise ValueError(f"timer {timer.name!r} is being recorded already: close that recording first")
        try:
            begun = {"version": _VERSION, "timer": timer.name, "at_us": timer.now_us(), "wall_ms": _wall_ms()}
            self._writer = pq.ParquetWriter(self._part, SCHEMA.with_metadata({_BEGUN: json.dumps(begun)}))
            self._thread = threading.Thread(target=self._run, name=f"recording-{timer.name}", daemon=True)
            self._thread.start()
        except BaseException:
            self._part.unlink(missing_ok=True)
            timer._stop_recording()
            raise

    def close(self) -> None:
        """End the recording and move the file to its path; a second call does nothing.

        Interrupted by Ctrl-C, it stops waiting. The file is finished all the same, at the latest when the interpreter
        exits, and a further `close` waits for that. Errors: `OSError` or pyarrow's if the file could not be written.
        Then the `.part` file has what was written, and no reader can open it.
        """
        if self._process != os.getpid():  # in a forked child: the recording is the parent's, and the lock may be locked
            return
        with self._closing:
            if self._is_closed:
                return
            # The thread is a daemon: a recording that is never closed must not stop the interpreter from exiting. It
            # sets an event at its end, as CPython 3.11 takes a thread for ended after its `join` was interrupted.
            atexit.register(self._wait_at_exit)
            self._ending.set()
            self._ended.wait()
            atexit.unregister(self._wait_at_exit)
            self._is_closed = True
            if self._error is not None:
                raise self._error

    def _wait_at_exit(self) -> None:
        """Does not wait in a forked child: the thread that ends the recording is the parent's."""
        if self._process == os.getpid():
            self._ending.set()  # an exception may have come before that
            self._ended.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        """The body of the thread. No other thread uses the writer."""
        try:
            with self._writer:
                self._write_until_the_end()
                ended = {"ended_us": self._timer.now_us(), "lost": self.lost}
                self._writer.add_key_value_metadata({_ENDED: json.dumps(ended)})
            self._part.replace(self._path)
        except Exception as error:
            self._error = error
            if not self._is_over:
                self._timer._stop_recording()
        finally:
            self._ended.set()

    def _write_until_the_end(self) -> None:
        group: list[pa.RecordBatch] = []
        while not self._ending.wait(_INTERVAL_S):
            self._take_all(group)
        self._take_all(group)
        rest = self._timer._stop_recording()  # the few events since then
        self._is_over = True  # from here on another recording of the timer may begin
        self._put(group, rest)
        self._write(group)

    def _take_all(self, group: list[pa.RecordBatch]) -> None:
        while self._put(group, self._timer._take_recorded(_STEP)) == _STEP:
            pass

    def _put(self, group: list[pa.RecordBatch], recorded: tuple[int, Sequence[bytes], int]) -> int:
        """Adds events to the group, and writes the group when it is large enough; returns the number of events."""
        count, columns, self.lost = recorded
        if count:
            group.append(_batch(count, columns))
        if sum(map(len, group)) >= _GROUP:
            self._write(group)
        return count

    def _write(self, group: list[pa.RecordBatch]) -> None:
        self._writer.write_table(pa.Table.from_batches(group, self._writer.schema))
        group.clear()


def about(path: str | os.PathLike[str]) -> About:
    """Read a recording's metadata. Errors: `OSError`, `BadRecording`."""
    with _open_recording(path) as file:
        return _about(path, file)


def read_recording(path: str | os.PathLike[str]) -> Iterator[pa.RecordBatch]:
    """Read the events in batches of `SCHEMA`, in order. Holds one row group. Errors: `OSError`, `BadRecording`."""
    with _open_recording(path) as file:
        _about(path, file)
        try:
            yield from file.iter_batches(batch_size=_STEP)
        except (pa.ArrowException, OSError) as error:  # pyarrow raises OSError for a broken file
            raise _bad_recording(path, f"it can't be read to its end ({str(error).splitlines()[0]})") from error


def replay(
    path: str | os.PathLike[str],
    tick_ms: int = 1,
    wheel_size: int | Sequence[int] = 20,
    *,
    precision: Literal["exact", "tick"] = "exact",
    slack_us: int = 100,
) -> "ReplayCounts":
    """Replay the recorded adds, moves and cancels on a wheel with these settings, in virtual time.

    It uses the timer itself on another clock, up to the recording's end, with a reaper that needs no time to wake up.
    Returns the counters of `stats()`, and also: `flushed` (buckets by level), `early_us` (how long before their instant
    tasks were released, as pairs of an upper bound and a number of tasks), `max_early_us`, `peak_pending`,
    `peak_bytes`, and `unknown` (moves and cancels of tasks that were not pending). O(levels) for each event. Errors:
    `OSError`, `BadRecording`, `ValueError` for settings that are not allowed.
    """
    wheel = Replay(tick_ms, wheel_size, precision=precision, slack_us=slack_us)
    for batch in read_recording(path):
        feed(wheel, batch, path)
    return wheel.finish(about(path).ended_us)


def feed(wheel: Replay, events: pa.RecordBatch, path: str | os.PathLike[str]) -> None:
    """Give events of the recording `path` to a replay. Errors: `BadRecording`."""
    kind = pc.index_in(events["kind"], value_set=pa.array(KINDS)).cast(pa.int64())
    other = pc.coalesce(events["was"], events["tasks"], 0)
    number, due_us = (pc.fill_null(events[name], 0) for name in ("number", "due_us"))
    try:
        wheel.feed(events["at_us"], kind, number, due_us, other)
    except ValueError as error:
        raise _bad_recording(path, str(error)) from error


def _batch(count: int, data: Sequence[bytes]) -> pa.RecordBatch:
    """Convert the timer's columns to those of `SCHEMA`."""

    def column(index: int, type_: pa.DataType) -> pa.Array:
        return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(data[index])])

    at, number, due, other = (column(index, pa.int64()) for index in range(4))
    kind, level = column(4, pa.int8()), column(5, pa.int8())

    def only_of(values: pa.Array, *kinds: int) -> pa.Array:
        is_of = pc.is_in(kind, value_set=pa.array(kinds, pa.int8()))
        return pc.if_else(is_of, values, pa.scalar(None, values.type))

    columns = [
        at,
        pa.DictionaryArray.from_arrays(kind, pa.array(KINDS)),
        only_of(number, _ADDED, _MOVED, _CANCELLED, _EXPIRED),
        only_of(due, _ADDED, _MOVED, _CANCELLED, _EXPIRED, _CASCADED),
        only_of(level, _ADDED, _MOVED, _CASCADED),
        only_of(other, _MOVED),
        only_of(other, _CASCADED),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _open_recording(path: str | os.PathLike[str]) -> Any:
    try:
        return pq.ParquetFile(path)
    except pa.ArrowException as error:
        raise _bad_recording(path, str(error).splitlines()[0]) from error


def _about(path: str | os.PathLike[str], file: pq.ParquetFile) -> About:
    metadata = file.metadata.metadata or {}
    if _BEGUN not in metadata or _ENDED not in metadata:
        raise _bad_recording(path, "it is another Parquet file")
    begun, ended = json.loads(metadata[_BEGUN]), json.loads(metadata[_ENDED])
    if begun["version"] != _VERSION:
        raise _bad_recording(path, f"it has version {begun['version']}, and this tickwheel reads version {_VERSION}")
    return About(begun["timer"], begun["at_us"], begun["wall_ms"], ended["ended_us"], ended["lost"])


def _bad_recording(path: str | os.PathLike[str], why: str) -> BadRecording:
    return BadRecording(
        f"{path} is not a recording that can be used: {why}; name a file that tickwheel.recording wrote"
    )
