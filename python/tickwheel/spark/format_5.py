"""The state of a checkpoint in the format 5, which an earlier version wrote: only to read it."""

from typing import Any, Final

import msgspec
import pyarrow as pa

from tickwheel.delivery.read.hand_off_rows import HANDED

VERSION: Final = 5


class Part(msgspec.Struct, array_like=True, frozen=True):
    """Rows of a chunk. `moved_to_ms`: when it is due, if it was rescheduled; it is one row then."""

    chunk: int
    start: int
    stop: int
    first_ms: int
    last_ms: int
    moved_to_ms: int | None = None
    is_again: bool = False
    name: int | None = None
    size: int = 0


class Run(msgspec.Struct, array_like=True):
    """Parts that wait. `given_to`: the store that they were given to before, if they were."""

    parts: list[Part]
    given_to: str = ""


class Controls(msgspec.Struct, array_like=True):
    """A chunk of cancels, reschedules, dead letters, and recurring messages (`rules` of them)."""

    chunk: int
    until_ms: int
    rules: int
    others: int
    given_to: str = ""
    is_given: bool = False
    is_taken: bool = False
    may_repeat: bool = False
    settled_ms: int | None = None
    size: int = 0


class Index(msgspec.Struct, array_like=True):
    """All that a shard keeps, beside its chunks. `runs` wait; `given` and `taken` are with the deliverer `taker`."""

    taker: str = ""
    address: str = ""
    moving_since_ms: int = 0
    lead_ms: int = 0
    next_chunk: int = 0
    runs: list[Run] = []
    given: list[Part] = []
    taken: list[Part] = []
    controls: list[Controls] = []
    asked_ms: int = 0
    early_ms: dict[int, int] = {}
    seen: tuple[str, int] | None = None


def index_of(data: bytes) -> Index:
    """Decode the value of the state `index`, whose first byte is the version."""
    return msgspec.msgpack.decode(data[1:], type=Index)


def rows_of(chunk: bytes) -> Any:
    """The rows of a chunk, as an Arrow batch of `HANDED`."""
    return pa.ipc.read_record_batch(pa.py_buffer(chunk)[1:], HANDED)
