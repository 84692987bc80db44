"""What a shard keeps between micro-batches: which rows of which chunks wait, or are given (S2, S4)."""

from collections.abc import Iterator
from typing import Final

import msgspec

from tickwheel.spark.orders import Seen
from tickwheel.spark.packing import VERSION, check_version

NOBODY = ""
_SMALL_ROWS: Final = 1_000
_SMALL_BYTES: Final = 256 << 10


class Part(msgspec.Struct, array_like=True, frozen=True):
    """Rows of a chunk, with the due times of the first and the last, in milliseconds since 1970. `moved_to_ms`: when it
    is due, if it was rescheduled; it is one row then, whose key and id have the digest `name`. `is_again`: a deliverer
    that is lost may have delivered them. `size`: of the chunk, in bytes.
    """

    chunk: int
    start: int
    stop: int
    first_ms: int
    last_ms: int
    moved_to_ms: int | None = None
    is_again: bool = False
    name: int | None = None
    size: int = 0

    @property
    def rows(self) -> int:
        """How many."""
        return self.stop - self.start

    @property
    def is_small(self) -> bool:
        """Whether it is worth joining with others, by its rows and the bytes of its chunk."""
        return self.rows <= _SMALL_ROWS and self.size <= _SMALL_BYTES and self.moved_to_ms is None

    def due_by(self, at_ms: int) -> int:
        """How many are due by then, about."""
        if at_ms >= self.last_due_ms:
            return self.rows
        return max(0, self.rows * (at_ms - self.first_due_ms + 1) // (self.last_due_ms - self.first_due_ms + 1))

    @property
    def open_ms(self) -> int:
        """With a mark at or after this time they have their outcome. For a moved message both due times count."""
        return self.last_ms if self.moved_to_ms is None else min(self.last_ms, self.moved_to_ms)

    @property
    def first_due_ms(self) -> int:
        """When the first is due now."""
        return self.first_ms if self.moved_to_ms is None else self.moved_to_ms

    @property
    def last_due_ms(self) -> int:
        """When the last is due now."""
        return self.last_ms if self.moved_to_ms is None else self.moved_to_ms


class Run(msgspec.Struct, array_like=True):
    """Parts in the order of delivery; one that was moved is alone. `given_to`: the store that they were given to
    before, if they were.
    """

    parts: list[Part]
    given_to: str = NOBODY

    @property
    def rows(self) -> int:
        """How many."""
        return sum(part.rows for part in self.parts)

    @property
    def moved_to_ms(self) -> int | None:
        """When it is due, if it was rescheduled."""
        return self.parts[0].moved_to_ms

    @property
    def first_ms(self) -> int:
        """When the first is due."""
        return self.parts[0].first_due_ms

    @property
    def until_ms(self) -> int:
        """When the last is settled, if a deliverer has settled all until then."""
        return self.parts[-1].last_ms


class Controls(msgspec.Struct, array_like=True):
    """A chunk of rows that are no messages to hold. `until_ms`: when all that waited as they came is due. `rules`: how
    many are recurring messages, which stay; `others`: how many are not.

    `given_to`: the store that they were given to last; `is_taken`: it has them. `may_repeat`: another
    may have had the recurring ones. `settled_ms`: until when all of their occurrences have their outcome.
    """

    chunk: int
    until_ms: int
    rules: int
    others: int
    given_to: str = NOBODY
    is_given: bool = False
    is_taken: bool = False
    may_repeat: bool = False
    settled_ms: int | None = None
    size: int = 0

    @property
    def is_small(self) -> bool:
        """Whether it is worth joining with others, by its rows and bytes."""
        return self.rules + self.others <= _SMALL_ROWS and self.size <= _SMALL_BYTES


class Index(msgspec.Struct, array_like=True):
    """All that a shard keeps.

    `taker`: the name of the store that it gives to, and everything given was given to; it was last at `address`.
    `moving_since_ms`: when it was told to change its taker, or 0. `lead_ms`: how long before they were due, at most,
    rows were given the last time. `given`: the parts that were given the last time; `taken`: earlier parts, which the
    taker has on its disk. `asked_ms`: of the last reschedule of a recurring message. `early_ms`: by the digest of a
    recurring message's name the time of the last occurrence that may have been sent before its time. `seen`: what the
    taker's store told when it was given, or known to have, rows last.
    """

    taker: str = NOBODY
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
    seen: Seen | None = None

    @classmethod
    def decode(cls, data: bytes | None) -> "Index":
        """The opposite of `encode`; None gives an empty index. Errors: `DeliveryFailed` if another version wrote it."""
        if data is None:
            return cls()
        check_version(data[0])
        return msgspec.msgpack.decode(data[1:], type=cls)

    def encode(self) -> bytes | None:
        """None if there is nothing to know."""
        if self == Index(next_chunk=self.next_chunk):
            return None
        return bytes([VERSION]) + msgspec.msgpack.encode(self)

    @property
    def waiting_rows(self) -> int:
        """How many messages wait, also those that are to be given again."""
        return sum(run.rows for run in self.runs)

    @property
    def first_ms(self) -> int | None:
        """When the first message that waits is due."""
        return min((run.first_ms for run in self.runs), default=None)

    @property
    def given_rows(self) -> int:
        """How many messages are given, and not settled."""
        return sum(part.rows for part in self.at_taker())

    @property
    def unsettled(self) -> int:
        """How many messages, and chunks of controls, are given, and not settled."""
        return self.given_rows + sum(it.is_given and it.others > 0 for it in self.controls)

    @property
    def waiting(self) -> int:
        """How many messages, and chunks of controls, are to be given."""
        return self.waiting_rows + sum(not it.is_given and it.others > 0 for it in self.controls)

    @property
    def rules(self) -> int:
        """How many recurring messages there are."""
        return sum(it.rules for it in self.controls)

    @property
    def is_bound(self) -> bool:
        """Whether its taker makes occurrences, and does that as long as it is there."""
        return any(it.rules and it.given_to == self.taker for it in self.controls)

    def due_by(self, at_ms: int) -> int:
        """How many messages that are not settled are due by then, about: parts count as if they were evenly spread."""
        return sum(part.due_by(at_ms) for part in self.parts())

    def parts(self) -> Iterator[Part]:
        """All that wait or are given."""
        for run in self.runs:
            yield from run.parts
        yield from self.at_taker()

    def at_taker(self) -> Iterator[Part]:
        """All that are given, and not settled."""
        yield from self.taken
        yield from self.given

    @property
    def is_unsettled(self) -> bool:
        """Whether its taker has messages, or may have some, without a reported outcome."""
        return bool(self.given or self.taken) or any(run.given_to == self.taker for run in self.runs)

    @property
    def has_given(self) -> bool:
        """Whether rows are given of which it is not known that the taker has them."""
        return bool(self.given) or any(it.is_given and not it.is_taken for it in self.controls)

    def chunks(self) -> set[int]:
        """The numbers of all chunks that are needed."""
        return {*(part.chunk for part in self.parts()), *(it.chunk for it in self.controls)}
