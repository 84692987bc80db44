"""What a shard keeps between micro-batches: which rows of which chunks wait, or are given (S2, S4).

Index --runs------> Run --parts--> Part --chunk--> rows    messages that wait
      --given-----> Part                                   given in the last micro-batch
      --taken-----> Part                                   on the deliverer's disk, without an outcome
      --controls--> Log --chunk--> rows                    cancels, reschedules, dead letters
"""

from collections.abc import Iterator, Set
from enum import IntEnum
from typing import Any, Final, Protocol

import msgspec

from tickwheel.spark.orders import Seen
from tickwheel.spark.packing import VERSION, check_version, pack, unpack

NOBODY = ""
_SMALL_ROWS: Final = 1_000
_SMALL_BYTES: Final = 256 << 10


class Part(msgspec.Struct, array_like=True, frozen=True):
    """The rows `start` to `stop` of a chunk, in the order of delivery. The first is due at `first_ms`, the last at
    `last_ms`, in milliseconds since 1970.

    A mark settles a row at its due time. If the row was rescheduled, it does so at the earlier one of both due times.
    The first row is settled at `since_ms`, the last at `until_ms`. `is_again`: a lost deliverer may have delivered
    them. `size`: of the chunk, in bytes.
    """

    chunk: int
    start: int
    stop: int
    first_ms: int
    last_ms: int
    since_ms: int
    until_ms: int
    is_again: bool = False
    size: int = 0

    @property
    def rows(self) -> int:
        """How many."""
        return self.stop - self.start

    @property
    def is_small(self) -> bool:
        """Whether it is worth joining with others, by its rows and the bytes of its chunk."""
        return self.rows <= _SMALL_ROWS and self.size <= _SMALL_BYTES

    def due_by(self, at_ms: int) -> int:
        """How many are due by then, about: as if they were evenly spread."""
        if at_ms >= self.last_ms:
            return self.rows
        return max(0, self.rows * (at_ms - self.first_ms + 1) // (self.last_ms - self.first_ms + 1))


class Run(msgspec.Struct, array_like=True):
    """Parts in the order of delivery. `is_unsure`: they were given to the taker, which may not have them."""

    parts: list[Part]
    is_unsure: bool = False

    @property
    def rows(self) -> int:
        """How many."""
        return sum(part.rows for part in self.parts)

    @property
    def first_ms(self) -> int:
        """When the first is due."""
        return self.parts[0].first_ms


class Stage(IntEnum):
    """Where rows of the log are. No stage is higher than that of the rows before."""

    WAITS = 0
    """Its taker does not have them."""
    UNSURE = 1
    """Its taker may have them: they are given again."""
    GIVEN = 2
    """They were given in the last micro-batch."""
    TAKEN = 3
    """Its taker has them on its disk."""


class Log(msgspec.Struct, array_like=True):
    """A chunk of rows that are given at once, in the order in which they came. They stay until all messages that waited
    when they came are settled, at `until_ms`. `is_again`: an earlier store may have had them.
    """

    chunk: int
    until_ms: int
    rows: int
    size: int
    stage: Stage = Stage.WAITS
    is_again: bool = False

    @property
    def is_small(self) -> bool:
        """Whether it is worth joining with others, by its rows and bytes."""
        return self.rows <= _SMALL_ROWS and self.size <= _SMALL_BYTES


class Index(msgspec.Struct, array_like=True):
    """All that a shard keeps.

    `taker`: the id of the store that it gives to, which was last at `address`. `seen`: what that store told when it was
    last given rows, or known to have them. `moving_since_ms`: when the shard was told to change its taker, or 0.
    `lead_ms`: how long before they were due, at most, rows were given the last time.

    `moved`: by the digest of its name the time that a message was rescheduled to.
    """

    taker: str = NOBODY
    address: str = ""
    seen: Seen | None = None
    moving_since_ms: int = 0
    lead_ms: int = 0
    next_chunk: int = 0
    runs: list[Run] = []
    given: list[Part] = []
    taken: list[Part] = []
    controls: list[Log] = []
    moved: dict[int, int] = {}

    @classmethod
    def decode(cls, data: bytes | None) -> "Index":
        """The opposite of `encode`; None gives an empty index. Errors: as `check_version`."""
        if data is None:
            return cls()
        check_version(data[0])
        return msgspec.msgpack.decode(data[1:], type=cls)

    def encode(self) -> bytes | None:
        """None if there is nothing to know."""
        if self == Index(next_chunk=self.next_chunk):
            return None
        return bytes([VERSION]) + msgspec.msgpack.encode(self)

    def parts(self) -> Iterator[Part]:
        """All that wait or are given."""
        for run in self.runs:
            yield from run.parts
        yield from self.at_taker()

    def at_taker(self) -> Iterator[Part]:
        """All that are given, and not settled."""
        yield from self.taken
        yield from self.given

    def chunks(self) -> set[int]:
        """The numbers of all chunks that are needed."""
        return {*(part.chunk for part in self.parts()), *(it.chunk for it in self.controls)}

    # --- What it tells of itself ---------------------------------------------

    @property
    def waiting_rows(self) -> int:
        """How many messages wait, also those that are to be given again."""
        return sum(run.rows for run in self.runs)

    @property
    def given_rows(self) -> int:
        """How many messages are given, and not settled."""
        return sum(part.rows for part in self.at_taker())

    @property
    def waiting(self) -> int:
        """How many messages, and chunks of controls, are to be given."""
        return self.waiting_rows + sum(it.stage < Stage.GIVEN for it in self.controls)

    @property
    def unsettled(self) -> int:
        """How many messages, and chunks of controls, are given, and not settled."""
        return self.given_rows + sum(it.stage >= Stage.GIVEN for it in self.controls)

    @property
    def first_ms(self) -> int | None:
        """When the first message that waits is due."""
        return min((run.first_ms for run in self.runs), default=None)

    def due_by(self, at_ms: int) -> int:
        """How many messages that are not settled are due by then, about."""
        return sum(part.due_by(at_ms) for part in self.parts())

    # --- What its taker has ---------------------------------------------------

    @property
    def is_unsettled(self) -> bool:
        """Whether the taker has messages, or may have some, without a reported outcome."""
        return bool(self.given or self.taken) or any(run.is_unsure for run in self.runs)

    @property
    def has_given(self) -> bool:
        """Whether rows are given, and the taker has not confirmed them."""
        return bool(self.given) or any(it.stage == Stage.GIVEN for it in self.controls)


class ChunkState(Protocol):
    """Keeps chunks by number: in Spark a map state."""

    def get(self, number: int) -> bytes:
        """A chunk that was put."""

    def put(self, number: int, chunk: bytes) -> None:
        """Keep a chunk."""

    def remove(self, number: int) -> None:
        """Forget a chunk."""


class Chunks:
    """Writes and reads them, each at most once in a visit. `index` has their numbers."""

    def __init__(self, index: Index, state: ChunkState) -> None:
        self._index = index
        self._state = state
        self._before: set[int] = index.chunks()
        self._read: dict[int, Any] = {}

    def put(self, rows: Any) -> int:
        """Keep rows; their number."""
        number = self._index.next_chunk
        self._index.next_chunk += 1
        self._state.put(number, pack(rows))
        self._before.add(number)
        self._read[number] = rows
        return number

    def get(self, number: int) -> Any:
        """The rows of a chunk."""
        if number not in self._read:
            self._read[number] = self.peek(number)
        return self._read[number]

    def peek(self, number: int) -> Any:
        """The same, without keeping them in memory."""
        return unpack(self._state.get(number))

    def keep_only(self, needed: Set[int]) -> None:
        """Forget the others."""
        for number in self._before - needed:
            self._state.remove(number)
